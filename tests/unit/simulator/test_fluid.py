"""Max-min sharing and its clock, against cases that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.errors import RunFailed
from driple.simulator.fluid import Flow, Fluid
from driple.simulator.timeline import timeline


def ends(fluid: Fluid, items: list[tuple[Flow, float]]) -> list[float]:
    found = [0.0] * len(items)
    left = len(items)

    def done(number: int) -> None:
        nonlocal left
        found[number] = fluid.now
        left -= 1

    for number, (flow, units) in enumerate(items):
        fluid.put(flow, units, lambda number=number: done(number))  # type: ignore[misc]
    fluid.run(lambda: not left)
    return found


def test_two_flows_share_a_link_until_the_shorter_ends() -> None:
    fluid = Fluid()
    one, two = fluid.flow({"link": 1.0}, {}), fluid.flow({"link": 1.0}, {})
    # Half the rate each until 2 s; then one unit of the longer is left at the full rate.
    assert ends(fluid, [(one, 1.0), (two, 2.0)]) == pytest.approx([2.0, 3.0])


def test_flows_that_share_a_full_resource_have_equal_rates() -> None:
    fluid = Fluid()
    slow = fluid.flow({"link": 1.0, "disk": 4.0}, {})  # alone it takes 4 s a unit and a quarter of the link
    fast = fluid.flow({"link": 1.0}, {})
    # 1.25 rate = 1: both at 0.8 of their own speed until the fast one ends at 3 / 0.8; then 0.25 units of 4 s are left.
    assert ends(fluid, [(slow, 1.0), (fast, 3.0)]) == pytest.approx([4.75, 3.75])


def test_max_min_on_two_links() -> None:
    fluid = Fluid()
    across = fluid.flow({"a": 1.0, "b": 1.0}, {})
    first, second, third = (fluid.flow({name: 1.0}, {}) for name in ("a", "a", "b"))
    # Link a has three flows at 1/3 each; link b gives the rest, 2/3, to the third. Equal ends by construction.
    units = [(across, 1.0), (first, 1.0), (second, 1.0), (third, 2.0)]
    assert ends(fluid, units) == pytest.approx([3.0] * 4)


def test_items_of_a_flow_pass_one_after_the_other() -> None:
    fluid = Fluid()
    flow = fluid.flow({"link": 0.5}, {"bytes": 10.0})
    assert ends(fluid, [(flow, 2.0), (flow, 4.0)]) == pytest.approx([1.0, 3.0])
    assert timeline(fluid.pieces["bytes"]).until(np.array([0.5, 1.0, 3.0])) == pytest.approx([10.0, 20.0, 60.0])


def test_an_item_of_nothing_ends_at_once() -> None:
    fluid = Fluid()
    assert ends(fluid, [(fluid.flow({"link": 1.0}, {}), 0.0)]) == [0.0]


def test_a_limit_holds_although_the_resource_is_free() -> None:
    fluid = Fluid()
    assert ends(fluid, [(fluid.flow({"link": 0.1}, {}, limit_s=2.0), 1.0)]) == pytest.approx([2.0])


def test_waiting_for_nothing_is_an_error() -> None:
    with pytest.raises(RunFailed, match="never happens"):
        Fluid().run(lambda: False)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.floats(0.1, 5.0)), min_size=1, max_size=8))
def test_no_resource_is_used_beyond_its_capacity_and_nothing_is_lost(flows: list[tuple[str, str, float]]) -> None:
    fluid = Fluid()
    items = [(fluid.flow({one: 1.0, other: 1.0}, {one: 1.0, other: 1.0, str(n): 1.0}), units)
             for n, (one, other, units) in enumerate(flows)]  # fmt: skip
    last = max(ends(fluid, items))
    for name in {name for one, other, _ in flows for name in (one, other)}:
        line = timeline(fluid.pieces[name])
        assert np.all(np.diff(line.total) <= np.diff(line.times) * (1 + 1e-6) + 1e-9)
    for number, (_, _, units) in enumerate(flows):
        assert timeline(fluid.pieces[str(number)]).until(np.array([last]))[0] == pytest.approx(units)
    # Work conservation: the job is not longer than the busiest resource alone, plus waiting for others.
    assert last <= sum(units for _, _, units in flows) * (1 + 1e-6)


def test_threads_share_a_processor_equally_and_not_flows() -> None:
    # Two threads compute on one processor. A transfer whose thread needs a fifth of it keeps its rate.
    fluid = Fluid()
    ends: dict[str, float] = {}

    def start(name: str, flow: Flow, units: float) -> None:
        fluid.put(flow, units, lambda: ends.update({name: fluid.now}))

    start("transfer", fluid.flow({"link": 1.0, "cores": 0.2}, {}, thread_s=0.2), 1.0)
    for name in ("one", "other"):
        start(name, fluid.flow({"cores": 1.0}, {}, 1.0, thread_s=1.0), 1.0)
    fluid.run(lambda: len(ends) == 3)
    # The transfer ends after 1 s. Until then the others have 0.4 of the processor each, later 0.5.
    assert ends == {"transfer": pytest.approx(1.0), "one": pytest.approx(2.2), "other": pytest.approx(2.2)}


def test_a_thread_is_no_faster_than_a_processor() -> None:
    fluid = Fluid()
    ends: list[float] = []
    fluid.put(fluid.flow({"cores": 0.25}, {}, thread_s=0.5), 2.0, lambda: ends.append(fluid.now))
    fluid.run(lambda: bool(ends))
    assert ends == [pytest.approx(1.0)]
