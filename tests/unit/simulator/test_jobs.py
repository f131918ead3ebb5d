"""Parameter-server and all-reduce jobs, against cases that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.strategy import TOPOLOGIES
from driple.contracts.traffic_formulas import Traffic, all_reduce_traffic
from driple.simulator.averaging_job import PairAveragingJob
from driple.simulator.collectives import AllReduceJob, phases
from driple.simulator.host_model import HostModel
from driple.simulator.machines import Cluster
from driple.simulator.parameter_server import ParameterServerJob
from driple.simulator.segments import Moved, Segment
from driple.simulator.timeline import timeline
from driple.simulator.training_job import BUSY, CPU, RX, TX, Job, meter, pair_meter

NOTHING = HostModel(
    rpc_s=0.0,
    server_send_s_per_byte=0.0,
    server_receive_s_per_byte=0.0,
    apply_s_per_byte=0.0,
    worker_s_per_byte=0.0,
    session_s=0.0,
    barrier_s=0.0,
    noise=0.0,
    start_phase=0.0,
)
MB = 1e6
APART = {"ps:0": 0, "worker:0": 1, "worker:1": 2}


def segments(compute_s: float = 1.0, mb: float = 100.0) -> list[Segment]:
    """One segment that needs all variables before and gives all gradients after."""
    return [Segment(compute_s, compute_s, compute_s / 2, {0: Moved(mb * MB, 1)}, {0: Moved(mb * MB, 1)})]


def ps_job(host: HostModel, workers: int, *, sync: bool, link: float | None = 100 * MB, **more: float) -> Job:
    job = ParameterServerJob(
        Cluster(APART, host, link), segments(**more), 1, workers, sync=sync, optimiser="sgd", steps=3, seed=1
    )
    job.run()
    return job


def steps(job: Job) -> list[list[float]]:
    return [np.diff(np.array(times)).tolist() for times in job.begun]


def total(job: Job, task: str, what: str) -> float:
    return float(timeline(job.fluid.pieces[meter(task, what)]).total[-1])


def test_one_worker_pulls_computes_and_pushes() -> None:
    # 100 MB at 100 MB/s: 1 s in, 1 s computing, 1 s out.
    job = ps_job(NOTHING, 1, sync=False)
    assert steps(job) == [pytest.approx([3.0] * 3)]
    assert total(job, "worker:0", RX) == pytest.approx(300 * MB)
    assert total(job, "worker:0", TX) == pytest.approx(300 * MB)
    assert total(job, "ps:0", TX) == pytest.approx(300 * MB)
    assert total(job, "worker:0", BUSY) == pytest.approx(3.0)


def test_two_workers_in_step_share_the_link_of_the_server() -> None:
    # 2 s in, 1 s computing, 2 s out, for both.
    assert steps(ps_job(NOTHING, 2, sync=True)) == [pytest.approx([5.0] * 3)] * 2


def test_a_synchronous_step_ends_with_update_and_barrier() -> None:
    host = replace(NOTHING, session_s=0.1, barrier_s=0.2, apply_s_per_byte=0.3 / (100 * MB))
    assert steps(ps_job(host, 1, sync=True)) == [pytest.approx([3.6] * 3)]


def test_an_asynchronous_push_includes_the_update() -> None:
    # The server needs 2 s for 100 MB, which is slower than the link.
    host = replace(NOTHING, apply_s_per_byte=2.0 / (100 * MB))
    assert steps(ps_job(host, 1, sync=False)) == [pytest.approx([4.0] * 3)]


def test_the_server_takes_time_for_each_tensor() -> None:
    host = replace(NOTHING, rpc_s=3.0)  # in each direction, instead of 1 s of the link
    assert steps(ps_job(host, 1, sync=False)) == [pytest.approx([7.0] * 3)]


def test_pcie_is_shared_by_the_gpus_of_a_machine() -> None:
    host = replace(NOTHING, pcie_bytes_per_s=50 * MB)
    together = {"ps:0": 0, "worker:0": 0, "worker:1": 0}
    job = ParameterServerJob(
        Cluster(together, host, None), segments(), 1, 2, sync=True, optimiser="sgd", steps=2, seed=1
    )
    job.run()
    assert steps(job) == [pytest.approx([9.0] * 2)] * 2  # 4 s down, 1 s computing, 4 s up


def test_computing_on_shared_processors() -> None:
    host = replace(NOTHING, cores=1.0, cpu_worker_s_per_byte=0.5 / (100 * MB))
    job = ParameterServerJob(
        Cluster(APART, host, None, one_processor=True, gpu=False), segments(), 1, 2, sync=True, optimiser="sgd",
        steps=2, seed=1,
    )  # fmt: skip
    job.run()
    # Both need 0.5 + 1 + 0.5 s of one processor.
    assert steps(job) == [pytest.approx([4.0] * 2)] * 2
    assert total(job, "worker:1", CPU) == pytest.approx(4.0)


def test_computing_overlaps_with_transfers_by_segments() -> None:
    two = [
        Segment(1.0, 1.0, 0.0, {0: Moved(50 * MB, 1)}, {}),
        Segment(1.0, 1.0, 0.0, {}, {0: Moved(100 * MB, 1)}),
    ]
    job = ParameterServerJob(Cluster(APART, NOTHING, 100 * MB), two, 1, 1, sync=False, optimiser="sgd", steps=2, seed=1)
    job.run()
    assert steps(job) == [pytest.approx([3.5] * 2)]  # 0.5 in, 2 computing, 1 out


def test_equal_seeds_give_equal_jobs_and_noise_differs_by_step() -> None:
    host = replace(NOTHING, noise=0.1)
    first, again = (steps(ps_job(host, 2, sync=False)) for _ in range(2))
    assert first == again
    assert len(set(first[0])) == len(first[0]) > 1


@pytest.mark.parametrize(
    ("topology", "step_s"),
    [("ring", 1.0 + 4 / 3), ("star", 1.0 + 2.0 + 2.0), ("binary_tree_star", 1.0 + 2.0 + 2.0)],
)
def test_an_all_reduce_of_three(topology: str, step_s: float) -> None:
    # 100 MB at 100 MB/s. Ring: 2 * 2/3 of it. Star, and a tree of a root with two leaves: two at a time in, then out.
    parts = [Segment(1.0, 1.0, 0.0, reduced=Moved(100 * MB, 1))]
    machines = {f"worker:{k}": k for k in range(3)}
    job = AllReduceJob(Cluster(machines, NOTHING, 100 * MB), parts, 3, topology=topology, steps=2, seed=1)
    job.run()
    assert steps(job) == [pytest.approx([step_s] * 2)] * 3


def test_latency_counts_once_for_each_round() -> None:
    parts = [Segment(1.0, 1.0, 0.0, reduced=Moved(100 * MB, 1))]
    machines = {f"worker:{k}": k for k in range(3)}
    host = replace(NOTHING, latency_s=0.25)
    job = AllReduceJob(Cluster(machines, host, 100 * MB), parts, 3, topology="ring", steps=1, seed=1)
    job.run()
    assert steps(job)[0] == pytest.approx([1.0 + 4 / 3 + 4 * 0.25])


def averaging(workers: int, steps: int, **more: float) -> Job:
    """Each step computes for 1 s and takes 100 MB."""
    parts = [Segment(0.5, 0.5, 0.0, reduced=Moved(50 * MB, 1))] * 2
    machines = {f"worker:{k}": k for k in range(workers)}
    job = PairAveragingJob(Cluster(machines, replace(NOTHING, **more), 100 * MB), parts, workers, steps=steps, seed=1)
    job.run()
    return job


def test_a_pair_exchanges_models_while_it_computes() -> None:
    # 100 MB at 100 MB/s come within the second of computing, one way in each direction.
    assert steps(averaging(2, 3)) == [pytest.approx([1.0] * 3)] * 2
    # Later than computing: 0.25 s after the request.
    assert steps(averaging(2, 3, latency_s=0.25)) == [pytest.approx([1.25] * 3)] * 2


def test_each_worker_takes_a_model_in_each_step_of_its_own() -> None:
    job = averaging(4, 40)
    for worker in range(4):
        taken = total(job, f"worker:{worker}", RX) / (100 * MB)
        assert len(job.begun[worker]) - 2 <= taken <= len(job.begun[worker])
    # By random choice: each of the three others about equally often.
    for peer in (1, 2, 3):
        moved = timeline(job.fluid.pieces[pair_meter(f"worker:{peer}", "worker:0")]).total[-1]
        assert 5 <= moved / (100 * MB) <= 25
    sent = sum(total(job, f"worker:{worker}", TX) for worker in range(4))
    assert sent == pytest.approx(sum(total(job, f"worker:{worker}", RX) for worker in range(4)))
    with pytest.raises(BadInput, match="at least 2 workers"):
        averaging(1, 3)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_topologies_move_what_the_formulas_say(topology: str) -> None:
    for machines in ((0, 1), (0, 1, 2), (0, 0, 1, 1, 2), range(8)):
        found: Traffic = {}
        for phase in phases(topology, machines, -1):
            for source, target, share in phase:
                pair = (f"worker:{source}", f"worker:{target}")
                found[pair] = found.get(pair, 0.0) + share
        assert found == pytest.approx(all_reduce_traffic(topology, machines, 1.0, -1))
    assert phases(topology, (0,)) == []


def test_a_worker_beside_its_server_does_more_asynchronous_steps_and_the_job_waits_for_the_others() -> None:
    # Worker 0 has no link between it and the server: it computes 0.1 s, and a copy in memory takes 1 ms each way. The
    # other needs 10 + 0.1 + 10 s.
    together = {"ps:0": 0, "worker:0": 0, "worker:1": 1}
    parts = segments(compute_s=0.1, mb=1000.0)
    job = ParameterServerJob(
        Cluster(together, NOTHING, 100 * MB, gpu=False), parts, 1, 2, sync=False, optimiser="sgd", steps=5, seed=1
    )
    job.run()
    near, far = steps(job)
    assert far[:3] == pytest.approx([20.1] * 3)
    assert len(near) > 500 and near == pytest.approx([0.102] * len(near))


def test_sessions_and_calls_take_processors() -> None:
    # A worker's session 0.5 s, the server's answer 0.25 s, then a call of the server (0.1 s), 1 s on the link, a call
    # of the worker (0.2 s), 1 s computing; back a call of the worker, 1 s on the link, a call of the server.
    costs = {"cpu_session_s": 0.5, "cpu_server_session_s": 0.25}
    calls = {"cpu_server_s_per_tensor": 0.1, "cpu_worker_s_per_tensor": 0.2}
    host = replace(NOTHING, cores=2.0, **costs, **calls)
    job = ParameterServerJob(
        Cluster(APART, host, 100 * MB, one_processor=True, gpu=False),
        segments(),
        1,
        1,
        sync=False,
        optimiser="sgd",
        steps=2,
        seed=1,
    )
    job.run()
    assert steps(job) == [pytest.approx([0.5 + 0.25 + 0.3 + 1.0 + 1.0 + 0.3 + 1.0] * 2)]
    assert total(job, "worker:0", CPU) == pytest.approx(2 * (0.5 + 0.2 + 1.0 + 0.2))
    assert total(job, "ps:0", CPU) == pytest.approx(2 * (0.25 + 0.1 + 0.1))


def test_ops_of_a_worker_use_free_processors() -> None:
    host = replace(NOTHING, cores=2.0, parallel=2.0)
    cluster = Cluster(APART, host, 100 * MB, one_processor=True, gpu=False)
    times = {}
    for workers in (1, 2):
        job = ParameterServerJob(cluster, segments(), 1, workers, sync=True, optimiser="sgd", steps=2, seed=1)
        job.run()
        times[workers] = steps(job)[0][0]
    assert times[1] == pytest.approx(1.0 + 0.5 + 1.0)
    assert times[2] == pytest.approx(2.0 + 1.0 + 2.0)  # the server's link and the processors are shared


@pytest.mark.parametrize("cores", [0.0, 1.0, 8.0])
def test_a_transfer_is_a_thread_at_each_end_whatever_the_link(cores: float) -> None:
    # 100 MB take 1 s of a processor at the worker and 0.5 s at the server: 1 s in, 1 s computing, 1 s out. On one
    # processor both ends share it: 1.5 s each way.
    host = replace(NOTHING, cores=cores, cpu_worker_s_per_byte=1 / (100 * MB), cpu_server_s_per_byte=0.5 / (100 * MB))
    cluster = Cluster(APART, host, None, one_processor=True, gpu=False)
    job = ParameterServerJob(cluster, segments(), 1, 1, sync=False, optimiser="sgd", steps=2, seed=1)
    job.run()
    assert steps(job) == [pytest.approx([4.0 if cores == 1.0 else 3.0] * 2)]


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("cores", [0.5, 1.0, 3.0])
def test_tasks_use_no_more_processors_than_there_are(cores: float, sync: bool) -> None:
    costs = dict.fromkeys(("cpu_worker_s_per_byte", "cpu_server_s_per_byte", "cpu_apply_s_per_byte"), 2e-8)
    calls = {"cpu_server_s_per_tensor": 0.1, "cpu_worker_s_per_tensor": 0.2, "cpu_session_s": 0.3}
    host = replace(NOTHING, cores=cores, parallel=4.0, noise=0.1, **costs, **calls)
    together = {"ps:0": 0, "worker:0": 0, "worker:1": 1, "worker:2": 1}
    job = ParameterServerJob(
        Cluster(together, host, 1e10, gpu=False), segments(), 1, 3, sync=sync, optimiser="sgd", steps=4, seed=1
    )
    job.run()
    for machine in (0, 1):
        names = [meter(task, CPU) for task, number in together.items() if number == machine]
        used = timeline([piece for name in names for piece in job.fluid.pieces[name]])
        lasted = np.diff(used.times)
        assert np.all(np.diff(used.total) <= cores * lasted * (1 + 1e-6) + 1e-9)
        assert np.max(np.diff(used.total)[lasted > 1e-6] / lasted[lasted > 1e-6]) == pytest.approx(cores)


def test_progress_rises_from_nothing_to_almost_all() -> None:
    shares: list[float] = []
    job = ParameterServerJob(
        Cluster(APART, NOTHING, 100 * MB), segments(), 1, 2, sync=True, optimiser="sgd", steps=4, seed=1
    )
    job.run(shares.append)
    assert shares[0] == 0.0 and shares[-1] == 0.99 and shares == sorted(shares)
    assert {1 / 16, 0.5, 14 / 16} <= set(shares)  # two workers, four steps of one segment: computing, then the step


def test_nccl_sends_from_gpu_to_gpu_after_the_backward_pass() -> None:
    # Two segments of 0.5 s with 50 MB each. On one machine NCCL sends 2 * 2/3 of 100 MB at 200 MB/s, after both,
    # without barrier: the hosts' channel, PCIe and session do not matter. No interface counts it.
    host = replace(NOTHING, nccl_bytes_per_s=200 * MB, pcie_bytes_per_s=1 * MB, worker_s_per_byte=1.0, session_s=9.0)
    parts = [Segment(0.5, 0.5, 0.0, reduced=Moved(50 * MB, 1)) for _ in range(2)]
    machines = dict.fromkeys((f"worker:{k}" for k in range(3)), 0)
    cluster = Cluster(machines, replace(host, barrier_s=9.0), None)
    job = AllReduceJob(cluster, parts, 3, topology="ring", steps=2, seed=1, nccl=True)
    job.run()
    assert steps(job) == [pytest.approx([1.0 + 2 / 3] * 2)] * 3
    assert not any(TX in name or RX in name for name in job.fluid.pieces)
    # Between machines the link is the limit, and interfaces count.
    apart = Cluster({task: number for number, task in enumerate(machines)}, host, 100 * MB)
    job = AllReduceJob(apart, parts, 3, topology="ring", steps=2, seed=1, nccl=True)
    job.run()
    assert steps(job) == [pytest.approx([1.0 + 4 / 3] * 2)] * 3
    assert total(job, "worker:0", TX) == pytest.approx(2 * 4 / 3 * 100 * MB)


def test_nccl_needs_gpus_and_a_rate() -> None:
    parts = [Segment(0.5, 0.5, 0.0, reduced=Moved(50 * MB, 1))]
    machines = {"worker:0": 0, "worker:1": 0}
    for gpu, message in ((False, "nccl needs GPUs"), (True, "neither nccl_bytes_per_s nor pcie_.*driple-calibrate")):
        with pytest.raises(BadInput, match=message):
            AllReduceJob(
                Cluster(machines, NOTHING, None, gpu=gpu), parts, 2, topology="ring", steps=2, seed=1, nccl=True
            )


def test_a_gpu_alone_waits_for_nobody() -> None:
    host = replace(NOTHING, session_s=0.5, barrier_s=0.5)
    parts = [Segment(1.0, 1.0, 0.0, reduced=Moved(50 * MB, 1))]
    for gpu, expected in ((True, 1.0), (False, 2.0)):
        job = AllReduceJob(Cluster({"worker:0": 0}, host, None, gpu=gpu), parts, 1, topology="ring", steps=2, seed=1)
        job.run()
        assert steps(job) == [pytest.approx([expected] * 2)]
