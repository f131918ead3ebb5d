"""A parameter-server job: every worker pulls variables, computes, and pushes gradients.

A step of a worker:

1. `session_s` after its start, and when its processor has done `cpu_session_s`, it asks every server for its variables,
   in no particular order, as TensorFlow does. A server answers when its processor has done `cpu_server_session_s`.
2. A segment starts when the one before has ended and its variables are here. Gradients leave as soon as they exist.
3. Asynchronous: servers apply each gradient as it arrives; the worker goes on when all are sent. Synchronous: servers
   add gradients up; when all workers have sent all, they apply the sum, and `barrier_s` later the next step begins.

All tensors between a worker and a server in one direction pass one after the other. Each is a call, which takes
processor time of its sender before and of its receiver after its bytes: `cpu_server_s_per_tensor`,
`cpu_worker_s_per_tensor`. A byte takes

    server     (rpc_s * tensors / bytes) + server_send_s_per_byte or server_receive_s_per_byte [+ apply_s_per_byte]
    worker     worker_s_per_byte
    link       1 / link rate, at the sender's and at the receiver's machine
    PCIe       1 / pcie rate at the worker's machine
    cores      processor seconds of both tasks / cores
"""

from __future__ import annotations

from driple.contracts.strategy import SERVER
from driple.simulator.fluid import Action, Flow
from driple.simulator.host_model import UPDATE_TENSORS
from driple.simulator.machines import Cluster
from driple.simulator.segments import Moved, Segment
from driple.simulator.training_job import CPU, LEAST_S, Job, meter


class ParameterServerJob(Job):
    """A job with servers."""

    def __init__(
        self,
        cluster: Cluster,
        segments: list[Segment],
        servers: int,
        workers: int,
        *,
        sync: bool,
        optimiser: str,
        steps: int,
        seed: int,
    ) -> None:
        """Prepares the flows of every worker and server."""
        super().__init__(cluster, segments, workers, steps, seed)
        self.servers = servers
        self.sync = sync
        self._update_tensors = UPDATE_TENSORS[optimiser]
        self._pulled = [_total(one.pulls.get(s) for one in segments) for s in range(servers)]
        self._pushed = [_total(one.pushes.get(s) for one in segments) for s in range(servers)]
        self._pulls = [[self._flow(k, s, pull=True) for s in range(servers)] for k in range(workers)]
        self._pushes = [[self._flow(k, s, pull=False) for s in range(servers)] for k in range(workers)]
        self._applies = [self._apply_flow(s) for s in range(servers)]
        self._calls = [[self._call_flows(k, s) for s in range(servers)] for k in range(workers)]
        self._sessions = [self.processor_flow(f"worker:{k}") for k in range(workers)]
        self._answers = [[self.processor_flow(f"{SERVER}:{s}") for s in range(servers)] for _ in range(workers)]
        self._waiting = 0

    def _begin_all(self) -> None:
        alone = sum(one.wall_s for one in self.segments)
        alone += sum(moved.bytes * flow.solo_s for moved, flow in zip(self._pulled, self._pulls[0], strict=True))
        for k in range(self.workers):
            delay = 0.0 if self.sync else k / self.workers * self.host.start_phase * alone
            self.fluid.after(delay, lambda k=k: self._begin(k))  # type: ignore[misc]

    def _begin_together(self) -> None:
        for worker in range(self.workers):  # in one event, so that the last step ends for all of them
            self._begin(worker)

    def _begin(self, worker: int) -> None:
        if not self.begin_step(worker):
            return
        missing = [len(one.pulls) for one in self.segments]
        unsent = sum(len(one.pushes) for one in self.segments) + len(self.segments)

        def arrived(number: int) -> None:
            missing[number] -= 1
            go()

        def sent() -> None:
            nonlocal unsent
            unsent -= 1
            if not unsent:
                self._end(worker)

        def computed(number: int) -> None:
            for server, moved in self.segments[number].pushes.items():
                self._move(worker, server, moved, sent, pull=False)
            sent()

        go = self.compute(worker, lambda number: not missing[number], computed)

        def answer(server: int) -> None:
            asked = [number for number, one in enumerate(self.segments) if server in one.pulls]
            for number in self.random.permutation(asked).astype(int).tolist():
                moved = self.segments[number].pulls[server]
                self._move(worker, server, moved, lambda number=number: arrived(number), pull=True)  # type: ignore[misc]

        def ask() -> None:
            for server, flow in enumerate(self._answers[worker]):
                self.fluid.put(flow, self.host.cpu_server_session_s, lambda server=server: answer(server))  # type: ignore[misc]
            go()

        session = self._sessions[worker]
        self.fluid.after(self.host.session_s, lambda: self.fluid.put(session, self.host.cpu_session_s, ask))

    def _end(self, worker: int) -> None:
        if not self.sync:
            self.fluid.after(0.0, lambda: self._begin(worker))
            return
        self._waiting += 1
        if self._waiting == self.workers:
            self._waiting = 0
            self._apply()

    def _apply(self) -> None:
        left = self.servers

        def applied() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.fluid.after(self.host.barrier_s, self._begin_together)

        for server in range(self.servers):
            self.fluid.put(self._applies[server], self._pushed[server].bytes, applied)

    def _move(self, worker: int, server: int, moved: Moved, done: Action, *, pull: bool) -> None:
        """Tensors that pass together: the sender's calls, then their bytes, then the receiver's calls."""
        flow = (self._pulls if pull else self._pushes)[worker][server]
        if not (self.host.cpu_server_s_per_tensor or self.host.cpu_worker_s_per_tensor):
            self.fluid.put(flow, moved.bytes, done)  # two events fewer
            return
        first, last = self._calls[worker][server] if pull else self._calls[worker][server][::-1]
        calls = moved.tensors

        def received() -> None:
            self.fluid.put(last, calls, done)

        self.fluid.put(first, calls, lambda: self.fluid.put(flow, moved.bytes, received))

    def _call_flows(self, worker: int, server: int) -> tuple[Flow, Flow]:
        """Calls of a server for a worker, and of the worker for the server: one after the other."""
        costs = {
            f"{SERVER}:{server}": self.host.cpu_server_s_per_tensor,
            f"worker:{worker}": self.host.cpu_worker_s_per_tensor,
        }
        first, last = (
            self.fluid.flow(self.cluster.processors({task: cost}), {meter(task, CPU): cost}, cost)
            for task, cost in costs.items()
        )
        return first, last

    def _flow(self, worker: int, server: int, *, pull: bool) -> Flow:
        host, ps, task = self.host, f"{SERVER}:{server}", f"worker:{worker}"
        moved = (self._pulled if pull else self._pushed)[server]
        tensors = moved.tensors / moved.bytes if moved.bytes else 0.0
        server_s = host.server_send_s_per_byte if pull else host.server_receive_s_per_byte
        applied = not pull and not self.sync
        cpu_s = {
            task: host.cpu_worker_s_per_byte,
            ps: host.cpu_server_s_per_byte + applied * host.cpu_apply_s_per_byte * self._update_tensors,
        }
        own = {
            ps: tensors * host.rpc_s + server_s + applied * host.apply_s_per_byte,
            f"{task} {'in' if pull else 'out'}": host.worker_s_per_byte,
        }
        source, target = (ps, task) if pull else (task, ps)
        return self.transfer_flow(source, target, own, cpu_s)

    def _apply_flow(self, server: int) -> Flow:
        ps = f"{SERVER}:{server}"
        cpu = self.host.cpu_apply_s_per_byte * self._update_tensors
        used = {ps: self.host.apply_s_per_byte, **self.cluster.processors({ps: cpu})}
        return self.fluid.flow(used, {meter(ps, CPU): cpu}, LEAST_S, cpu)


def _total(parts: object) -> Moved:
    total = Moved()
    for part in parts:  # type: ignore[attr-defined]
        if part is not None:
            total.bytes += part.bytes
            total.tensors += part.tensors
    return total
