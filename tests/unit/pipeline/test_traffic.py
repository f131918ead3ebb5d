"""What is computed from packets and events, on cases that can be counted by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.packets import TCP
from driple.contracts.traffic_formulas import step_bytes
from driple.pipeline.traffic.packet_columns import Endpoint, Flow, Packets, join
from driple.pipeline.traffic.packet_events import senders_only
from driple.pipeline.traffic.regression import mean_interval, regress, student_t
from driple.pipeline.traffic.tcp import retransmissions, true_loss
from driple.pipeline.traffic.traffic_events import Events, TaskFlow, flow_size_cdf

A, B = Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2)


def packets(flow: Flow, segments: list[tuple[int, int]], *, pieces: int = 1) -> Packets:
    """TCP data as (sequence number, bytes), a millisecond apart."""
    seq, size = (np.array(column, np.int64) for column in zip(*segments, strict=True))
    zero: Any = np.zeros(len(seq), np.int64)
    t_ns: Any = np.arange(len(seq)) * 1_000_000
    return Packets(t_ns, zero, size + 66, size, zero + pieces, seq % 2**32, zero, zero, (flow,))


SENT = Flow(A, B, TCP, True)
ARRIVED = Flow(A, B, TCP, False)


def test_wire_bytes_have_headers_for_each_segment() -> None:
    assert packets(SENT, [(0, 3000)], pieces=3).wire_bytes.tolist() == [3000 + 3 * 66]


def test_retransmissions_are_data_below_the_highest_so_far() -> None:
    found = retransmissions(packets(SENT, [(0, 100), (100, 100), (200, 100), (100, 100), (250, 100), (350, 10)]))
    assert (found.segments, found.data_segments, found.bytes) == (2, 6, 150)
    assert found.t_ns.tolist() == [3_000_000, 4_000_000]


def test_sequence_numbers_wrap() -> None:
    start = 2**32 - 150
    assert retransmissions(packets(SENT, [(start + 100 * i, 100) for i in range(5)])).segments == 0
    assert retransmissions(packets(SENT, [(start, 100), (start + 100, 100), (start + 100, 100)])).segments == 1


def test_without_data_nothing_is_sent_again() -> None:
    assert retransmissions(packets(SENT, [(0, 0), (1, 0)])).share is None


def test_flows_do_not_disturb_each_other() -> None:
    other = Flow(B, A, TCP, True)
    both = join([packets(SENT, [(5000, 100), (5100, 100)]), packets(other, [(10, 100), (110, 100)])])
    assert retransmissions(both).segments == 0


def test_true_loss_compares_both_ends() -> None:
    sender = packets(SENT, [(100 * i, 100) for i in range(10)])
    receiver = packets(ARRIVED, [(100 * i, 100) for i in range(8)])
    loss = true_loss(join([sender, receiver]))
    assert loss is not None and (loss.sent, loss.received) == (10, 8) and loss.share == pytest.approx(0.2)
    assert true_loss(sender) is None
    more = packets(ARRIVED, [(100 * i, 100) for i in range(11)])  # than was sent: the capture began earlier
    assert true_loss(join([sender, more])) is None


def test_each_packet_counts_once() -> None:
    both = join([packets(SENT, [(0, 100)]), packets(ARRIVED, [(0, 100)])])
    assert senders_only(both).flows == both.flows and len(senders_only(both)) == 1
    assert len(senders_only(packets(ARRIVED, [(0, 100)]))) == 1  # loopback: nothing else has it


FLOWS = (TaskFlow(A, B, TCP, "a", "b"), TaskFlow(B, A, TCP, "b", "a"), TaskFlow(A, B, TCP, "a", "c"))
EVENTS = Events(
    np.array([0.0005, 0.0015, 0.5, 0.9995, 12.0]),
    np.array([0, 1, 0, 2, 0]),
    np.array([1000, 10, 1000, 500, 2000]),
    FLOWS,
    0.001,
)


def test_volumes_and_matrix() -> None:
    assert EVENTS.total == 4510
    assert EVENTS.matrix() == {("a", "b"): 4000, ("a", "c"): 500, ("b", "a"): 10}
    assert EVENTS.sent() == {"a": 4500, "b": 10, "c": 0}
    assert EVENTS.received() == {"a": 10, "b": 4000, "c": 500}


def test_throughput_and_pairs() -> None:
    assert EVENTS.throughput(0.001, 0, 0.003).tolist() == [1e6, 1e4, 0]
    by_pair = EVENTS.pair_throughput(0.5, 0, 1)
    assert {pair: rate.tolist() for pair, rate in by_pair.items()} == {
        ("a", "b"): [2000, 2000],
        ("a", "c"): [0, 1000],
        ("b", "a"): [20, 0],
    }


def test_flows_and_their_load() -> None:
    facts = EVENTS.flow_facts()
    assert [(row.flow.pair, row.bytes, row.events, row.start_s, row.end_s) for row in facts] == [
        (("a", "b"), 4000, 3, 0.0005, 12.0),
        (("b", "a"), 10, 1, 0.0015, 0.0015),
        (("a", "c"), 500, 1, 0.9995, 0.9995),
    ]
    sizes, share = flow_size_cdf(facts)
    assert sizes.tolist() == [10, 500, 4000] and share.tolist() == [1 / 3, 2 / 3, 1]
    assert EVENTS.load().tolist() == [[2000, 2000], [10, 0], [500, 0]]


def test_burstiness() -> None:
    steady = Events(np.arange(100) / 100, np.zeros(100, int), np.full(100, 7), FLOWS, 0.001)
    assert steady.peak_to_mean(0.1) == pytest.approx(1, rel=0.2)
    bursts = Events(np.repeat(np.arange(10.0), 2) + [0, 0.05] * 10, np.zeros(20, int), np.full(20, 7), FLOWS, 0.001)
    assert bursts.peak_to_mean(0.1) == pytest.approx(10, rel=0.1)
    assert bursts.peak_to_mean(0.0001) is None


def test_students_t() -> None:
    for freedom, value in ((1, 12.7062), (4, 2.7764), (29, 2.0452), (99, 1.9842)):
        assert student_t(0.95, freedom) == pytest.approx(value, abs=2e-4)
    found = mean_interval([1, 2, 3, 4, 5])
    assert found is not None and found[0] == 3
    assert found[1] == pytest.approx(2.7764 * math.sqrt(2.5 / 5), abs=1e-3)
    assert mean_interval([1]) is None


def test_a_regression_with_kinds() -> None:
    size = [1, 2, 3, 4, 5, 6, 7, 8]
    kind = list("xyxyxyxy")
    noise = [0.1, -0.1, -0.1, 0.1, 0.1, -0.1, -0.1, 0.1]
    y = [2 * s + (10 if k == "y" else 0) + e for s, k, e in zip(size, kind, noise, strict=True)]
    fit = regress(y, {"size": size, "same": [1] * 8}, {"kind": kind})
    found = {one.name: one for one in fit.coefficients}
    assert list(found) == ["intercept", "size", "kind=y"]  # a constant tells nothing beside the intercept
    assert (fit.rows, fit.freedom) == (8, 5)
    for name, value in (("intercept", 0), ("size", 2), ("kind=y", 10)):
        assert found[name].low < value < found[name].high
    # The textbook interval of a slope with one regressor beside it.
    x = np.c_[np.ones(8), size, [k == "y" for k in kind]].astype(float)
    residual = np.array(y) - x @ np.linalg.lstsq(x, np.array(y), rcond=None)[0]
    error = math.sqrt(residual @ residual / 5 * np.linalg.inv(x.T @ x)[1, 1])
    assert found["size"].high - found["size"].value == pytest.approx(student_t(0.95, 5) * error, rel=1e-9)
    with pytest.raises(BadInput, match="expected more rows"):
        regress(y[:3], {"size": size[:3]}, {"kind": kind[:3]})


def test_formulas() -> None:
    assert step_bytes("ring", 20.0, 4)["worker:3"] == (30.0, 30.0)
    assert step_bytes("clique", 20.0, 4)["worker:0"] == (30.0, 30.0)
    star = step_bytes("star", 20.0, 4)
    assert (star["worker:0"].sent, star["worker:1"].sent) == (60.0, 20.0)
    servers = step_bytes("ps", 20.0, 3, 2)
    assert (servers["worker:0"].sent, servers["ps:1"].received) == (20.0, 30.0)
    assert step_bytes("unheard-of", 20.0, 3) == {}
