"""Bytes of a step in predictions: the formulas, the simulation, and what a real run sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import driple
from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Measurement, RunSpec, Workload
from driple.contracts.setting import Setting
from driple.contracts.strategy import TOPOLOGIES
from driple.contracts.traffic_formulas import WIRE_FACTOR
from driple.contracts.traffic_formulas import step_traffic as by_formula
from driple.inspector.cli_predict import main
from driple.inspector.predict.step_traffic import StepTraffic
from driple.pipeline.traffic.find_jobs import find_jobs

RUNS = Path(__file__).parents[2] / "data" / "runs"


def traffic(model: str, setting: str, topology: str | None = None) -> StepTraffic:
    (one,) = driple.predict(model, setting=setting, topology=topology)
    assert one.traffic is not None
    return one.traffic


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_an_all_reduce_has_the_formula_of_its_topology(topology: str) -> None:
    found = traffic("lenet", "cpu-p0w4-1g", topology=topology)
    setting = Setting.parse("cpu-p0w4-1g")
    backend = "mpi"  # whose ring has the direction of TensorFlow's
    workload = Workload("lenet", "imagenet", 32, strategy="allreduce", framework="torch", backend=backend)
    run = RunSpec(setting, workload, Measurement(steps=1), tuple((task,) for task in setting.tasks))
    (model_bytes,) = {size for (_, _), size in traffic("lenet", "cpu-p0w2-1g").pairs.items()}  # 2 (n - 1) / n is 1
    spec = RunSpec.from_json({**run.to_json(), "workload": {**run.to_json()["workload"], "topology": topology}})
    assert found.pairs == pytest.approx(by_formula(spec, [int(model_bytes)]))
    assert found.simulated == pytest.approx(found.pairs)
    assert found.topology == topology and found.bytes == pytest.approx(2 * 3 * model_bytes)
    assert found.flows == len(found.pairs) == {"ring": 4, "clique": 12}.get(topology, 6)
    assert found.wire_bytes == pytest.approx(found.bytes * WIRE_FACTOR)


@pytest.mark.parametrize("update", ["sync", "async"])
@pytest.mark.parametrize("sharding", ["balanced", "round_robin"])
def test_servers_send_the_variables_that_they_hold(sharding: str, update: str) -> None:
    (one,) = driple.predict("lenet", setting="v100-p2w2-40g", sharding=sharding, update=update)
    found = one.traffic
    assert found is not None and found.topology == "ps" and found.flows == 8
    assert found.simulated == pytest.approx(found.pairs, rel=0.2 if update == "async" else 1e-9)
    for server in ("ps:0", "ps:1"):
        assert found.sent(server) == found.received(server) == 2 * found.pairs[server, "worker:0"]
    whole = traffic("lenet", "v100-p1w2-pcie")
    assert found.sent("worker:0") == found.sent("worker:1") == whole.sent("worker:0") == whole.received("worker:1")
    # One layer has 74 % of the weights. By turns, the same server gets all other weights, and the other one all biases.
    share = found.pairs["ps:1", "worker:1"] / whole.sent("worker:1")
    assert share == pytest.approx(0.740 if sharding == "balanced" else 0.999, abs=0.001)


def test_a_worker_alone_sends_nothing() -> None:
    assert traffic("lenet", "cpu-p0w1-1g").pairs == {}
    assert traffic("lenet", "cpu-p1w1-pcie").flows == 2


def test_an_inspector_has_it_too_and_a_real_run_sent_it() -> None:
    run = RUNS / "cpu-p1w2-1g-resnet20-b16-s32-momentum-sync-cd03dca0a8d1"
    (one,) = driple.predict(graph=run / "graph" / "worker.parquet", setting="cpu-p1w2-1g")
    assert one.inspector is not None and one.traffic is not None and one.traffic.simulated == {}
    (job,) = find_jobs([run]).jobs
    measured = job.sent_per_step()
    assert measured.keys() == set(one.traffic.tasks)
    for task, count in measured.items():  # of interfaces, with headers
        assert 1.0 < count / one.traffic.sent(task) < 1.06, task
    (loaded,) = driple.Inspector.load("cpu-p1w2-1g").predict(graph=run / "graph" / "worker.parquet")
    assert loaded.traffic is not None and loaded.traffic.pairs == one.traffic.pairs


def test_the_graph_of_another_number_of_servers_has_none() -> None:
    graph = RUNS / "cpu-p1w2-1g-resnet20-b16-s32-momentum-sync-cd03dca0a8d1" / "graph" / "worker.parquet"
    (one,) = driple.predict(graph=graph, setting="cpu-p2w2-1g")
    assert one.traffic is None and "traffic  " not in str(driple.predict(graph=graph, setting="cpu-p2w2-1g"))


def test_text_json_and_frame(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["resnet20", "--setting", "v100-p1w2-pcie"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("traffic")]
    assert lines[place].endswith("MB in 4 flows in a step, payload by formula (ps); 4.34 MB in 4 flows simulated")
    assert lines[place + 1].split() == ["from", "\\", "to", "ps:0", "worker:0", "worker:1", "sent"]
    assert lines[place + 3].split() == ["worker:0", "1.08", "MB", "-", "-", "1.08", "MB"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["predictions"][0]["traffic"]
    assert told["flows"] == told["simulated"]["flows"] == 4 and told["bytes"] == sum(size for *_, size in told["pairs"])
    assert told["tasks"]["ps:0"]["sent_bytes"] == 2 * told["tasks"]["worker:0"]["received_bytes"]
    frame = driple.predict("resnet20", setting="v100-p1w2-pcie").to_frame()
    assert (frame["traffic_bytes"][0], frame["traffic_flows"][0]) == (told["bytes"], 4)
    assert main(["resnet20", "--setting", "v100-p5w10-1g"]) == 0
    assert "from \\ to" not in capsys.readouterr().out  # 15 columns are no text


def test_a_topology_needs_an_all_reduce() -> None:
    with pytest.raises(BadInput, match="topology does not apply to strategy ps"):
        driple.predict("lenet", setting="cpu-p1w2-1g", topology="star")
    with pytest.raises(BadInput, match="clique"):
        driple.predict("lenet", setting="cpu-p0w2-1g", topology="cliqe")
