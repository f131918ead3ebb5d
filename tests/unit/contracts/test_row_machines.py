"""Machines of rows: which fingerprints are of one machine, in spite of their noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.fingerprint import MEASURES, Fingerprint
from driple.contracts.row_machines import LIMIT, NEEDED, check_one_machine, machines_of, said, same_machine

SLOW = Fingerprint(
    cores=2,
    hash_bytes_per_s=1e9,
    deflate_bytes_per_s=2e7,
    core_speedup=1.9,
    copy_bytes_per_s=1e10,
    switch_s=4e-5,
    loopback_bytes_per_s=3e9,
)


def faster(factor: float, spread_pct: float = 0.0) -> Fingerprint:
    """A machine that hashes faster, and repeats of it that vary."""
    return replace(SLOW, hash_bytes_per_s=factor * SLOW.hash_bytes_per_s, spread_pct={"copy_bytes_per_s": spread_pct})


def row(run: str, fingerprint: Fingerprint | None, task: str = "worker:0", at_s: float = 0.0) -> dict[str, Any]:
    """The columns that matter of a row."""
    base = {"run_id": run, "role": task.partition(":")[0], "started_real_s": at_s}
    if fingerprint is None:
        return base
    own = {f"fingerprint_{name}": value for name, value in vars(fingerprint).items() if name != "spread_pct"}
    return {**base, **own, "fingerprint_spread_pct": fingerprint.compared_spread_pct}


def numbers(*fingerprints: Fingerprint | None) -> list[int | None]:
    rows = [row(f"run{place}", one, at_s=float(place)) for place, one in enumerate(fingerprints)]
    return list(machines_of(rows).numbers)


def test_more_than_the_limit_is_another_machine() -> None:
    assert same_machine(SLOW, faster(1 + LIMIT - 0.001))
    assert not same_machine(SLOW, faster(1 + LIMIT + 0.001))
    assert numbers(SLOW, faster(1.04), faster(1.3), faster(1.31)) == [1, 1, 2, 2]


def test_noise_of_the_fingerprint_is_not_a_machine() -> None:
    assert not same_machine(SLOW, faster(1.08))
    assert same_machine(SLOW, faster(1.08, spread_pct=8.0))
    assert not same_machine(SLOW, faster(1.30, spread_pct=8.0))


def test_a_fingerprint_that_was_taken_on_a_busy_machine_tells_nothing() -> None:
    busy = replace(SLOW, core_speedup=1.25, spread_pct={"core_speedup": 19.5})
    assert numbers(SLOW, busy, SLOW) == [1, None, 1]
    assert numbers(SLOW, replace(busy, spread_pct={"core_speedup": 2.0})) == [1, 2]
    assert numbers(SLOW, replace(SLOW, spread_pct={"switch_s": 50.0})) == [1, 1]


def test_latency_and_loopback_tell_no_machines_apart() -> None:
    assert same_machine(SLOW, replace(SLOW, switch_s=9e-5, loopback_bytes_per_s=1e9))


def test_no_chain_of_noisy_fingerprints_joins_two_machines() -> None:
    between = [faster(1.00 + 0.03 * step, spread_pct=3.0) for step in range(1, 10)]
    found = numbers(SLOW, faster(1.30), *between)
    assert found[:2] == [1, 2]
    assert len({*found}) < 6  # each takes its neighbours


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [row(f"run{n}", faster(1.00 + 0.02 * n, spread_pct=n % 4), at_s=float(n)) for n in range(20)]
    there, back = machines_of(rows), machines_of(rows[::-1])
    assert there.numbers == back.numbers[::-1]
    assert (there.difference, there.runs) == (back.difference, back.runs)


def test_numbers_are_in_the_order_of_time() -> None:
    rows = [row("b", faster(2.0), at_s=2.0), row("a", SLOW, at_s=1.0)]
    assert machines_of(rows).numbers == (2, 1)


def test_versions_of_the_benchmark_are_not_mixed() -> None:
    other = replace(SLOW, version=SLOW.version + 1)
    found = machines_of([row("a", SLOW), row("b", other)])
    assert found.numbers == (1, 2)
    assert said(found) == "1 and 1 runs of 2 machines that cannot be compared (fingerprints)"


def test_rows_without_a_fingerprint_are_of_no_known_machine() -> None:
    assert numbers(None, SLOW) == [None, 1]
    partial = row("run", SLOW)
    del partial["fingerprint_core_speedup"]
    assert machines_of([partial, row("other", replace(SLOW, copy_bytes_per_s=0.0))]).numbers == (None, None)
    check_one_machine([row("a", None), row("b", SLOW)], "")


def test_tasks_of_a_run_may_be_on_different_machines_if_every_run_has_the_same() -> None:
    one = [row("a", SLOW, "ps:0"), row("a", faster(2.0), "worker:0"), row("a", SLOW, "worker:1")]
    swapped = [row("b", SLOW, "ps:0"), row("b", SLOW, "worker:0"), row("b", faster(2.0), "worker:1")]
    check_one_machine([*one, *swapped], "")
    turned = [row("c", faster(2.0), "ps:0"), row("c", SLOW, "worker:0"), row("c", SLOW, "worker:1")]
    with pytest.raises(BadInput, match="2 and 1 runs of 2 machines that differ by 100 % .fingerprints.; choose"):
        check_one_machine([*one, *swapped, *turned], "choose")


def test_the_columns_are_those_of_the_fingerprint() -> None:
    assert {name.removeprefix("fingerprint_") for name in NEEDED} == {*MEASURES, "cores", "version", "spread_pct"}
