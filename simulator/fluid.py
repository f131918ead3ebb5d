"""A fluid event model: flows share resources max-min fairly, and a clock jumps from change to change.

A flow moves *units* (bytes, or seconds of computing). Alone it needs `solo_s` seconds per unit. While it progresses
at the fraction `rate` of that speed, it uses `rate * demand` of each of its resources; every resource has capacity 1.
Rates follow from progressive filling: the rates of all flows grow, each by its weight, until a resource is full. Its
flows keep that rate, and the others grow on, at most to 1. Weights are 1, but for flows that need little of a
processor: an operating system gives threads equal time, so a transfer whose busiest thread needs a tenth of a processor
has the weight 10 beside a thread that computes.

    solo_s = max over the resources of the seconds per unit, at least the flow's own limit
    demand = seconds of the resource per unit / solo_s

Between two changes all rates are constant, so the next event is known. A rate is computed again only where a change
can matter: a flow that starts or ends on resources that are not full changes no other flow.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from driple.contracts.errors import RunFailed

Action = Callable[[], None]

_FULL = 1e-9
"""A resource with less free capacity than this is full."""


def _weight(flow: Flow) -> float:
    return flow.weight


class Flow:
    """Units that pass through resources, one item after the other."""

    __slots__ = ("_due", "_items", "demand", "meters", "moved", "rate", "since", "solo_s", "weight")

    def __init__(
        self, demand: Sequence[tuple[int, float]], solo_s: float, meters: Sequence[tuple[str, float]], weight: float
    ) -> None:
        self.demand = demand
        self.weight = weight
        self.solo_s = solo_s
        self.meters = meters
        self.rate = 0.0
        self.since = 0.0
        self.moved = 0.0
        """Units of the current item that are done."""
        self._items: deque[tuple[float, Action | None]] = deque()
        self._due = -1


class Fluid:
    """The clock, the flows and what they moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pieces: dict[str, list[tuple[float, float, float]]] = {}
        """By meter: (start, end, amount) of every stretch of constant rate."""
        self._numbers: dict[str, int] = {}
        self._used: list[float] = []
        self._running: dict[Flow, None] = {}
        self._events: list[tuple[float, int, Flow | None, Action | None]] = []
        self._ticket = count()
        self._dirty = False

    def flow(
        self,
        seconds_per_unit: Mapping[str, float],
        meters: Mapping[str, float],
        limit_s: float = 0.0,
        thread_s: float = 0.0,
    ) -> Flow:
        """A flow without items.

        Args:
            seconds_per_unit: seconds of each resource that one unit takes.
            meters: amount that one unit adds to each meter.
            limit_s: seconds per unit that it needs at least, whatever the resources.
            thread_s: processor seconds per unit of its busiest thread, if threads share processors; also a limit.
        """
        solo = max([limit_s, thread_s, *seconds_per_unit.values()])
        demand = [(self._number(name), s / solo) for name, s in seconds_per_unit.items() if s > 0]
        weight = solo / thread_s if thread_s > 0 else 1.0
        return Flow(demand, solo, [(name, amount) for name, amount in meters.items() if amount], weight)

    def put(self, flow: Flow, units: float, done: Action | None = None) -> None:
        """Appends an item to a flow; `done` is called when it has passed."""
        if units * flow.solo_s <= 0 and not flow._items:
            self.after(0.0, done)
            return
        flow._items.append((units, done))
        if len(flow._items) == 1:
            self._start(flow)

    def after(self, delay_s: float, action: Action | None) -> None:
        """Calls `action` later."""
        if action is not None:
            heapq.heappush(self._events, (self.now + delay_s, next(self._ticket), None, action))

    def run(self, finished: Callable[[], bool]) -> None:
        """Goes on until `finished` holds after an event. Raises RunFailed if nothing can go on before."""
        while not finished():
            # Once for all that happens at this moment.
            if self._dirty and not (self._events and self._events[0][0] <= self.now):
                self._share()
            if not self._events:
                raise RunFailed("the simulated job waits for something that never happens")
            at, ticket, flow, action = heapq.heappop(self._events)
            if flow is not None and flow._due != ticket:
                continue  # its rate has changed since
            self.now = at
            if flow is not None:
                self._pass(flow)
            elif action is not None:
                action()
        for flow in self._running:
            self._flush(flow)

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._used)
            self._used.append(0.0)
        return self._numbers[name]

    def _start(self, flow: Flow) -> None:
        flow.moved, flow.rate, flow.since = 0.0, 0.0, self.now
        self._running[flow] = None
        if not self._dirty and all(self._used[r] + d <= 1.0 - _FULL for r, d in flow.demand):
            for resource, demand in flow.demand:
                self._used[resource] += demand
            self._change(flow, 1.0)
        else:
            self._dirty = True

    def _pass(self, flow: Flow) -> None:
        """The first item of a flow has passed."""
        self._flush(flow)
        flow.moved = 0.0
        _, done = flow._items.popleft()
        if flow._items:
            self._schedule(flow)
        else:
            del self._running[flow]
            full = any(self._used[r] >= 1.0 - _FULL for r, _ in flow.demand)
            for resource, demand in flow.demand:
                self._used[resource] -= flow.rate * demand
            self._dirty = self._dirty or full
        if done is not None:
            done()

    def _flush(self, flow: Flow) -> None:
        """Records what a flow moved at its present rate."""
        lasted = self.now - flow.since
        if lasted > 0 and flow.rate > 0:
            units = flow.rate * lasted / flow.solo_s
            flow.moved += units
            for name, amount in flow.meters:
                self.pieces.setdefault(name, []).append((flow.since, self.now, units * amount))
        flow.since = self.now

    def _change(self, flow: Flow, rate: float) -> None:
        self._flush(flow)
        flow.rate = rate
        self._schedule(flow)

    def _schedule(self, flow: Flow) -> None:
        left = flow._items[0][0] - flow.moved
        flow._due = next(self._ticket)
        if flow.rate > 0:
            at = self.now + max(left, 0.0) * flow.solo_s / flow.rate
            heapq.heappush(self._events, (at, flow._due, flow, None))

    def _share(self) -> None:
        """Progressive filling over all running flows."""
        load = [0.0] * len(self._used)
        wanted = [0.0] * len(self._used)
        members: dict[int, list[Flow]] = {}
        for flow in self._running:
            for resource, demand in flow.demand:
                load[resource] += flow.weight * demand
                wanted[resource] += demand
                members.setdefault(resource, []).append(flow)
        free = {resource: 1.0 for resource in members if wanted[resource] > 1.0}  # no other can become full
        rates: dict[Flow, float] = {}
        growing = sorted(self._running, key=_weight)
        while free:
            while growing and growing[-1] in rates:
                growing.pop()
            level, tight = 1 / growing[-1].weight if growing else math.inf, -1
            for resource, capacity in free.items():
                if load[resource] > _FULL and capacity < level * load[resource]:
                    level, tight = max(capacity, 0.0) / load[resource], resource
            if tight < 0 and (not growing or growing[0].weight == growing[-1].weight):
                break  # the others have the rate 1
            for flow in members[tight] if tight >= 0 else growing[-1:]:
                if flow in rates:
                    continue
                rates[flow] = rate = min(level * flow.weight, 1.0)
                for resource, demand in flow.demand:
                    load[resource] -= flow.weight * demand
                    if resource in free:
                        free[resource] -= rate * demand
            if tight >= 0:
                del free[tight]
        used = [0.0] * len(self._used)
        for flow in self._running:
            rate = rates.get(flow, 1.0)
            for resource, demand in flow.demand:
                used[resource] += rate * demand
            if abs(rate - flow.rate) > 1e-12:
                self._change(flow, rate)
        self._used = used
        self._dirty = False
