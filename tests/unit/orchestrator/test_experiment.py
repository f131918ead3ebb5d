from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest

from driple.contracts.errors import FileFaults
from driple.contracts.run_spec import Measurement, NetworkCondition
from driple.contracts.strategy import FRAMEWORKS, STRATEGIES
from driple.contracts.zoo import Model
from driple.orchestrator.config.experiment import NETWORK_AXES, Experiment, Timeouts, load_experiment
from driple.orchestrator.config.placement import Policy
from driple.orchestrator.planning.plan import plan
from driple.orchestrator.planning.plan_text import plan_text

HEAD = "setting: cpu-p1w2-1g\nsteps: 5\n"


def load(folder: Path, text: str) -> Experiment:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return load_experiment(path)


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(FileFaults) as raised:
        load(folder, text)
    return [str(fault).removeprefix(str(folder) + "/") for fault in raised.value.faults]


def workloads(folder: Path, text: str) -> list[str]:
    return [workload.label for workload in load(folder, HEAD + text).workloads]


def test_every_key(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(
        """
        defaults: {user: driple, work_dir: /scratch/driple, python: /opt/py/bin/python}
        hosts:
          a: {address: 192.0.2.1, port: 2200, gpus: {v100: 2}, identity_file: ~/.ssh/cluster, data_dir: /data}
          b: {gpus: {v100: [1, 3]}, image: driple/workload, networks: {1g: {address: 192.0.2.9, nic: eno1}, 40g: {}}}
          c:
        """
    )
    (tmp_path / "lists.yaml").write_text("small: [{model: [resnet20, resnet32]}]")
    experiment = load(
        tmp_path,
        """
        name: my-sweep
        setting: [v100-p1w2-1g, V100-P2w2/he-1G]
        hosts: hosts.yaml
        placement: {spread: 2}
        defaults: {optimiser: adam}
        workload_lists: lists.yaml
        workloads:
          - use: small
            batch_size: [8, 16]
        duration: 2min
        warmup_steps: 0
        sampling_hz: 250
        threads: 2
        network:
          - {rate: [100mbit, 1gbit], loss: 0.5%}
          - {delay: 5ms}
        repetitions: 3
        seed: 7
        timeouts: {start: 90s, step: 1min, run: 2h, stop: 500ms}
        retries: 0
        retry_wait: 30s
        """,
    )
    assert experiment.name == "my-sweep"
    assert [str(setting) for setting in experiment.settings] == ["v100-p1w2-1g", "v100-p2w2-1g"]
    assert experiment.policy == Policy(kind="spread", machines=2)
    assert len(experiment.workloads) == 4
    assert {(w.model, w.batch_size, w.optimiser, w.image_size) for w in experiment.workloads} == {
        (model, batch, "adam", 32) for model in ("resnet20", "resnet32") for batch in (8, 16)
    }
    assert experiment.measurement == Measurement(duration_s=120.0, warmup_steps=0, sampling_hz=250.0, threads=2)
    assert experiment.networks == (
        NetworkCondition(100.0, 0.0, 0.5),
        NetworkCondition(1000.0, 0.0, 0.5),
        NetworkCondition(None, 5.0, 0.0),
    )
    assert (experiment.repetitions, experiment.seed, experiment.retries, experiment.retry_wait_s) == (3, 7, 0, 30.0)
    assert experiment.timeouts == Timeouts(start_s=90.0, step_s=60.0, run_s=7200.0, stop_s=0.5)
    a, b, c = experiment.inventory.hosts
    assert (a.address, a.user, a.port, a.python, a.image, a.data_dir) == (
        "192.0.2.1", "driple", 2200, "/opt/py/bin/python", None, "/data",
    )  # fmt: skip
    assert (b.image, b.gpu_indices("v100"), b.networks["1g"].nic) == ("driple/workload", (1, 3), "eno1")
    assert (c.address, c.work_dir, c.gpu_indices("v100")) == ("c", "/scratch/driple", ())


def test_the_least_that_an_experiment_says(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + "workloads: [{model: resnet50}]")
    (workload,) = experiment.workloads
    assert (workload.dataset, workload.image_size, workload.batch_size, workload.update) == (
        "imagenet",
        224,
        32,
        "sync",
    )
    assert (experiment.name, experiment.inventory.kind) == ("sweep", "lab")


def test_ordinary_sizes_written_out_are_the_same_workload(tmp_path: Path) -> None:
    said = load(tmp_path, HEAD + "workloads: [{model: inception3, image_size: 299, width: 1, dataset: imagenet}]")
    assert said.workloads == load(tmp_path, HEAD + "workloads: [{model: inception3}]").workloads


def test_grid_exclude_include(tmp_path: Path) -> None:
    assert workloads(
        tmp_path,
        """
workloads:
  - model: [resnet20, resnet32]
    batch_size: [8, 16]
    exclude:
      - {model: resnet32, batch_size: 16}
    include:
      - {model: resnet44}
      - {model: resnet32, batch_size: 4, update: async}
""",
    ) == [
        "resnet20-b8-s32-momentum-sync",
        "resnet20-b16-s32-momentum-sync",
        "resnet32-b8-s32-momentum-sync",
        "resnet44-b8-s32-momentum-sync",
        "resnet44-b16-s32-momentum-sync",
        "resnet32-b4-s32-momentum-async",
    ]


def test_exclude_matches_what_was_left_to_defaults(tmp_path: Path) -> None:
    text = "workloads: [{model: [resnet20, resnet50], exclude: [{dataset: imagenet}]}]"
    assert workloads(tmp_path, text) == ["resnet20-b32-s32-momentum-sync"]


def test_exclusions_may_overlap_and_may_not_leave_nothing(tmp_path: Path) -> None:
    grid = "workloads: [{model: [resnet20, vgg16], batch_size: [1, 2], exclude: [%s]}]"
    overlapping = grid % "{model: vgg16}, {batch_size: 2, model: vgg16}, {batch_size: 2}"
    assert workloads(tmp_path, overlapping) == ["resnet20-b1-s32-momentum-sync"]
    assert faults(tmp_path, HEAD + grid % "{update: sync}") == [
        "sweep.yaml:3: workloads: every combination is excluded; no workload is left"
    ]


def test_reading_gives_up_on_a_file_with_too_many_faults(tmp_path: Path) -> None:
    found = faults(tmp_path, HEAD + f"workloads: [{{model: resnet20, batch_size: [{', '.join('x' * 2000)}]}}]")
    assert len(found) == 1002
    assert found[0] == "sweep.yaml: more than 1000 faults; reading ends here"


def test_a_workload_named_twice_is_done_once(tmp_path: Path) -> None:
    assert len(workloads(tmp_path, "workloads: [{model: [resnet20, vgg16]}, {model: resnet20, batch_size: 32}]")) == 2


def test_a_default_size_applies_to_models_that_have_it(tmp_path: Path) -> None:
    text = "defaults: {image_size: [16, 24], sequence_length: 8}\nworkloads: [{model: [resnet20, transformer, ncf]}]"
    assert [label.split("-")[:3] for label in workloads(tmp_path, text)] == [
        ["resnet20", "b32", "s16"], ["resnet20", "b32", "s24"], ["transformer", "b32", "s8"],
        ["ncf", "b32", "momentum"],
    ]  # fmt: skip


def test_a_grid_wins_over_defaults(tmp_path: Path) -> None:
    text = "defaults: {batch_size: [1, 2], update: async}\nworkloads: [{model: ncf, batch_size: 64}]"
    assert workloads(tmp_path, text) == ["ncf-b64-momentum-async"]


def test_rows_of_different_workloads_look_different(tmp_path: Path) -> None:
    found = workloads(
        tmp_path,
        "defaults: {image_size: 64}\n"
        "workloads: [{model: alexnet, dataset: [imagenet, cifar10], sharding: [balanced, round_robin]}]",
    )
    assert len(set(found)) == 4


def test_all_reduce_has_no_copies(tmp_path: Path) -> None:
    head = "setting: cpu-p0w2-1g\nsteps: 5\n"
    text = "defaults: {update: [sync, async], sharding: round_robin}\nworkloads: [{model: ncf, strategy: allreduce%s}]"
    assert [workload.update for workload in load(tmp_path, head + text % "").workloads] == ["sync"]
    assert faults(tmp_path, head + text % ", update: async") == [
        "sweep.yaml:4: workloads[0]: update does not apply to strategy allreduce, which is always sync"
    ]
    assert faults(tmp_path, head + text % ", sharding: round_robin") == [
        "sweep.yaml:4: workloads[0]: sharding does not apply to strategy allreduce"
    ]


def test_a_workload_has_the_framework_of_its_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FRAMEWORKS, "other", replace(FRAMEWORKS["torch"], name="other"))
    monkeypatch.setitem(STRATEGIES, "allreduce", replace(STRATEGIES["allreduce"], frameworks={"other": ("gloo",)}))
    monkeypatch.setattr(Model, "frameworks", ("other",))
    (workload,) = load(
        tmp_path, "setting: cpu-p0w2-1g\nsteps: 1\nworkloads: [{model: lenet, strategy: allreduce}]\n"
    ).workloads
    assert (workload.framework, workload.backend, workload.topology) == ("other", "gloo", "ring")


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("until: 0%", "until: expected a share above 0, beside steps"),
        ("until: 3", "until: expected a percentage such as"),
        (
            "until: 3%\nworkloads: [{model: lenet, strategy: allreduce}]",
            "runs with strategy: allreduce cannot end early",
        ),
    ],
)
def test_an_early_end_that_cannot_be_is_a_fault(tmp_path: Path, keys: str, fault: str) -> None:
    setting = "cpu-p0w2-1g" if "allreduce" in keys else "cpu-p1w2-1g"
    rest = "" if "workloads" in keys else "\nworkloads: [{model: lenet}]"
    found = faults(tmp_path, f"setting: {setting}\nsteps: 5\n{keys}{rest}")
    assert any(fault in line for line in found), found


def test_an_early_end_is_another_run(tmp_path: Path) -> None:
    rest = HEAD + "workloads: [{model: lenet}]\n"
    (early,), (whole,) = (plan(load(tmp_path, rest + more)) for more in ("until: 3%", ""))
    assert early.spec.measurement == replace(whole.spec.measurement, until_pct=3.0) and early.id != whole.id


def test_a_key_at_its_default_is_the_same_run(tmp_path: Path) -> None:
    head = "setting: cpu-p0w2-1g\nsteps: 5\nworkloads: [{model: lenet, strategy: allreduce%s}]\n"
    plain, said = (
        load(tmp_path, head % more) for more in ("", ", framework: tensorflow, backend: grpc, topology: ring")
    )
    assert plain.workloads == said.workloads
    grid = load(tmp_path, head % ", framework: torch, topology: [ring, tree, clique]").workloads
    assert [(work.backend, work.topology) for work in grid] == [("gloo", name) for name in ("ring", "tree", "clique")]


@pytest.mark.parametrize(
    ("setting", "keys", "fault"),
    [
        ("cpu-p0w2-1g", "strategy: allreduce, topology: star", "topology star is not possible with tensorflow"),
        ("cpu-p1w2-1g", "topology: star", "topology does not apply to strategy ps"),
        ("cpu-p1w2-1g", "framework: torch", "framework torch has no strategy ps (it has allreduce, pair_averaging)"),
        ("cpu-p0w2-1g", "strategy: allreduce, backend: gloo", "of framework tensorflow has no backend gloo"),
        ("cpu-p0w2-1g", "strategy: allreduce, framework: torch, backend: nccl", "backend nccl needs GPUs"),
        ("cpu-p0w2-1g", "strategy: allreduce, backend: nccl", "backend nccl needs GPUs"),
        (
            "cpu-p0w2-1g",
            "strategy: allreduce, framework: torch, backend: horovod_gloo, topology: star",
            "topology star is not possible with horovod_gloo (it has ring)",
        ),
        ("cpu-p1w2-1g", "backend: horovod_mpi", "of framework tensorflow has no backend horovod_mpi"),
        ("cpu-p0w1-1g", "strategy: pair_averaging", "pair_averaging needs at least 2 workers"),
        ("cpu-p0w2-1g", "strategy: pair_averaging, update: sync", "which is always async"),
        ("cpu-p0w2-1g", "strategy: pair_averaging, topology: ring", "topology does not apply to strategy"),
    ],
)
def test_what_does_not_go_together_is_one_line(tmp_path: Path, setting: str, keys: str, fault: str) -> None:
    (found,) = faults(tmp_path, f"setting: {setting}\nsteps: 5\nworkloads: [{{model: lenet, {keys}}}]\n")
    assert fault in found


def test_a_model_that_torch_does_not_have_is_refused(tmp_path: Path) -> None:
    text = "setting: cpu-p0w2-1g\nsteps: 5\nworkloads: [{model: nasnet, strategy: allreduce, framework: torch}]\n"
    (found,) = faults(tmp_path, text)
    assert "nasnet cannot be trained with framework torch" in found


def test_axes_beside_use_win_over_the_lists_include_and_its_exclude_may_miss(tmp_path: Path) -> None:
    (tmp_path / "workloads.yaml").write_text(
        "a: [{model: resnet20, batch_size: [8, 64], exclude: [{batch_size: 64}],"
        " include: [{model: resnet32, batch_size: 128}]}]\n"
    )
    assert workloads(tmp_path, "workloads: [{use: a}]") == [
        "resnet20-b8-s32-momentum-sync",
        "resnet32-b128-s32-momentum-sync",
    ]
    assert workloads(tmp_path, "workloads: [{use: a, batch_size: 8}]") == [
        "resnet20-b8-s32-momentum-sync",
        "resnet32-b8-s32-momentum-sync",
    ]


@pytest.mark.parametrize("name", ["~nosuchuser/x.yaml", "x" * 300 + ".yaml", "a\0.yaml", "/", "nowhere.yaml"])
@pytest.mark.parametrize("key", ["hosts", "workload_lists", "model"])
def test_files_that_cannot_be_read_are_faults(tmp_path: Path, key: str, name: str) -> None:
    quoted = json.dumps(name)
    keys = {
        "hosts": f"hosts: {quoted}\nworkloads: [{{model: ncf}}]",
        "workload_lists": f"workload_lists: {quoted}\nworkloads: [{{use: a}}]",
        "model": f"workloads: [{{model: {json.dumps(name.replace('.yaml', '.py') + ':f')}, dataset: cifar10}}]",
    }
    assert len(faults(tmp_path, HEAD + keys[key])) == 1


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (found,) = faults(tmp_path, HEAD + 'workloads: [{model: "pipe.py:f", dataset: cifar10}]')
    assert found.endswith("pipe.py' is not a regular file")


def test_one_spelling_for_one_model_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").touch()
    spellings = ["net.py:f", "./net.py:f", "x/../net.py:f", f"{tmp_path}/net.py:f"]
    found = {load(tmp_path, HEAD + f"workloads: [{{model: '{s}', dataset: cifar10}}]").workloads for s in spellings}
    assert len(found) == 1


def test_one_value_for_one_duration(tmp_path: Path) -> None:
    head = "setting: cpu-p1w2-1g\nworkloads: [{model: ncf}]\n"
    assert load(tmp_path, head + "duration: 9ms").measurement == load(tmp_path, head + "duration: 0.009s").measurement


def test_what_is_too_much(tmp_path: Path) -> None:
    thousand = ", ".join(f"{n}ms" for n in range(1, 1001))
    percents = ", ".join(f"{n / 100}%" for n in range(1, 1001))
    text = HEAD + f"workloads: [{{model: ncf}}]\nnetwork: {{delay: [{thousand}], loss: [{percents}]}}"
    assert faults(tmp_path, text) == [
        "sweep.yaml:4: network: 1000000 conditions; an experiment has at most 100000 runs"
    ]
    text = HEAD + f"repetitions: 1000\nworkloads: [{{model: ncf}}]\nnetwork: {{delay: [{thousand}]}}"
    assert faults(tmp_path, text) == ["sweep.yaml:1: 1000000 runs; an experiment has at most 100000"]


def test_a_run_must_have_time_for_its_duration(tmp_path: Path) -> None:
    head = "setting: cpu-p1w2-1g\nworkloads: [{model: ncf}]\nduration: 2h\n"
    assert load(tmp_path, head).timeouts.run_s is None
    assert faults(tmp_path, head + "timeouts: {run: 1h}") == [
        "sweep.yaml:4: timeouts: run: 3600 s is not enough for a duration of 7200 s"
    ]


def test_limits_of_quantities(tmp_path: Path) -> None:
    head = "setting: cpu-p1w2-1g\nworkloads: [{model: ncf, width: true}]\n"
    text = head + "duration: 721h\nnetwork: {loss: 100%, delay: 61s}\nplacement: {spread: 1}"
    assert [fault.partition(" expected ")[2] for fault in faults(tmp_path, text)] == [
        "a number from 0.01 to 64, got True",
        "a duration above 0 and at most 30 days, got '721h'",
        "at most 60s, got '61s'",
        "a share below '100%', got '100%'",
        "a whole number from 2 to 2048, got 1",
    ]


def test_gpus_and_hosts_that_are_counted_twice_and_names_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(
        "hosts:\n  a: {gpus: {v100: 2, titanrtx: 2}}\n  b: {address: a}\n  c: {address: a, port: 2222}\n"
        '  "-oProxyCommand=x": {}\n  d: {user: "bob smith", address: "has space; rm -rf"}\n'
    )
    word = "expected a name or address without spaces, slashes and a leading dash"
    assert faults(tmp_path, HEAD + "hosts: hosts.yaml\nworkloads: [{model: ncf}]") == [
        "hosts.yaml:2: hosts.a.gpus: one GPU cannot be of two kinds; "
        "say their indices, like {v100: [0, 1], titanrtx: [2]}",
        "hosts.yaml:3: hosts.b: is the same machine as 'a': both are at 'a'",
        f"hosts.yaml:5: hosts.-oProxyCommand=x: {word} as key",
        f"hosts.yaml:6: hosts.d.address: {word}, got 'has space; rm -rf'",
        f"hosts.yaml:6: hosts.d.user: {word}, got 'bob smith'",
    ]


def test_lists_use_lists(tmp_path: Path) -> None:
    (tmp_path / "workloads.yaml").write_text(
        "all: [{use: some, batch_size: 4}, {model: vgg16}]\nsome: [{model: resnet20, batch_size: [8, 16]}]\n"
    )
    assert workloads(tmp_path, "workloads: [{use: all, update: async}]") == [
        "resnet20-b4-s32-momentum-async",
        "vgg16-b32-s224-momentum-async",
    ]


def test_lists_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "workloads.yaml").write_text("a: [{use: b}]\nb: [{use: a}]\n")
    assert faults(tmp_path, HEAD + "workloads: [{use: a}]") == [
        "workloads.yaml:2: b[0].use: workload lists use one another in a circle: a -> b -> a"
    ]


def test_faults_of_named_files_say_which_file(tmp_path: Path) -> None:
    (tmp_path / "workloads.yaml").write_text("a: [{model: resnet20, batch_size: 0}]\n")
    (tmp_path / "hosts.yaml").write_text(
        "hosts:\n  x: {prot: 22}\n  y: {port: 70000, python: p, image: i}\n  z z: {gpus: {V100: two}}\n"
    )
    found = faults(tmp_path, HEAD + "hosts: hosts.yaml\nworkloads: [{use: a}]\n")
    assert [fault.partition(" (known")[0] for fault in found] == [
        "hosts.yaml:2: hosts.x: unknown key 'prot'; did you mean 'port'?",
        "hosts.yaml:3: hosts.y.image: a task runs in an image or with a python, not both",
        "hosts.yaml:3: hosts.y.port: expected a whole number from 1 to 65535, got 70000",
        "hosts.yaml:4: hosts.z z: expected a name or address without spaces, slashes and a leading dash as key",
        "hosts.yaml:4: hosts.z z.gpus.V100: expected a GPU kind in lower case without spaces, as in a setting: "
        "v100, 2080ti, titanrtx",
        "hosts.yaml:4: hosts.z z.gpus.V100: expected a whole number from 1 to 256, got 'two'",
        "workloads.yaml:1: a[0].batch_size: expected a positive integer, got 0",
    ]


def test_own_model_is_another_workload_when_its_code_changes(tmp_path: Path) -> None:
    code = tmp_path / "net.py"
    text = HEAD + 'workloads: [{model: "net.py:build", dataset: cifar10}]'
    code.write_text("def build(x): return x")
    first = load(tmp_path, text).workloads
    code.write_text("def build(x): return x + 1")
    assert load(tmp_path, text).workloads != first
    assert first[0].image_size == 32


def test_aliases_report_a_fault_once_per_place(tmp_path: Path) -> None:
    text = (
        HEAD + "workloads:\n  - model: resnet20\n    batch_size: &b [8, bad]\n  - model: resnet32\n    batch_size: *b\n"
    )
    assert faults(tmp_path, text) == [
        "sweep.yaml:5: workloads[0].batch_size[1]: expected a positive integer, got 'bad'",
        "sweep.yaml:5: workloads[1].batch_size[1]: expected a positive integer, got 'bad'",
    ]


def test_a_file_name_that_is_no_folder_name(tmp_path: Path) -> None:
    path = tmp_path / "my sweep!.yaml"
    path.write_text(HEAD + "workloads: [{model: resnet20}]")
    with pytest.raises(FileFaults, match="give the experiment a name: key"):
        load_experiment(path)


def test_every_field_of_a_network_condition_has_a_key() -> None:
    assert [field for field, _ in NETWORK_AXES.values()] == [field.name for field in fields(NetworkCondition)]


def test_a_grid_has_a_setting_and_conditions_of_its_own(tmp_path: Path) -> None:
    experiment = load(
        tmp_path,
        """
        setting: cpu-p0w4-1g
        steps: 5
        repetitions: 2
        defaults: {strategy: allreduce}
        network: {loss: [0%, 1%]}
        workloads:
          - model: [resnet20, resnet32]
            framework: torch
          - {model: lenet, network: {loss: 2%, congestion: [cubic, bbr]}}
          - {model: lenet, network: {loss: 2%, congestion: bbr}}
          - {model: lenet, strategy: ps, setting: [cpu-p1w4-1g, cpu-p2w4-1g]}
        """,
    )
    runs = plan(experiment)
    found = [(str(one.spec.setting), one.spec.workload.model, one.spec.network.label) for one in runs]
    ring = [("cpu-p0w4-1g", model, loss) for model in ("resnet20", "resnet32") for loss in ("", "1%")]
    lossy = [("cpu-p0w4-1g", "lenet", f"2% {control}") for control in ("cubic", "bbr")]
    servers = [(f"cpu-p{count}w4-1g", "lenet", loss) for count in (1, 2) for loss in ("", "1%")]
    assert found == [*ring, *lossy, *servers] * 2
    assert [str(setting) for setting in experiment.settings] == ["cpu-p0w4-1g", "cpu-p1w4-1g", "cpu-p2w4-1g"]
    assert len(experiment.workloads) == 4 and len(experiment.networks) == 4
    text = plan_text(experiment, runs, frozenset())
    assert "20 runs (1 setting x 2 workloads x 2 network conditions + 1 setting x 1 workload x 2" in text


@pytest.mark.parametrize(
    ("grid", "fault"),
    [
        ("setting: cpu-p0w2-1g", "workloads[0].setting: strategy ps needs at least one server; cpu-p0w2-1g has 0"),
        ("setting: nonsense", "workloads[0].setting: "),
        ("setting: cpu-p1w1-pcie, network: {loss: 1%}", "workloads[0].network: cpu-p1w1-pcie is one machine"),
        ("network: {rate: 2gbit}", "workloads[0].network: rate 2000mbit is above the link of cpu-p1w2-1g"),
        ("network: []", "workloads[0].network: expected at least one condition"),
    ],
)
def test_settings_and_conditions_of_grids_are_checked(tmp_path: Path, grid: str, fault: str) -> None:
    (found,) = faults(tmp_path, HEAD + f"workloads: [{{model: lenet, {grid}}}]")
    assert found.startswith(f"sweep.yaml:3: {fault}")


@pytest.mark.parametrize("key", ["setting: cpu-p1w1-1g", "network: {loss: 1%}"])
def test_grids_of_named_lists_have_no_settings(tmp_path: Path, key: str) -> None:
    (tmp_path / "workloads.yaml").write_text(f"small: [{{model: lenet, {key}}}]")
    (found,) = faults(tmp_path, HEAD + "workloads: [{use: small}]")
    assert found.startswith(f"workloads.yaml:1: small[0]: unknown key '{key.partition(':')[0]}'")
