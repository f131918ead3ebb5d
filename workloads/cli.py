"""Command of a host that trains: runs a task of a job, extracts graphs, runs the fork server, lists the models."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NoReturn

from driple.contracts.command import CommandParser, PartParser, command
from driple.contracts.command_guard import require
from driple.contracts.errors import BadInput
from driple.contracts.formats.calibration_result import CPU_DEVICE, GPU_DEVICE
from driple.contracts.run_spec import SHARDINGS, UPDATES, JobSpec
from driple.contracts.strategy import FRAMEWORKS, default_strategy
from driple.contracts.zoo import DATASETS, MODELS, OPTIMISERS, ordinary_size

BATCH_SIZE = 32
PROG = "python -m driple.workloads.cli"


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 success, 1 a run failed, 2 bad input."""
    arguments = _parser().parse_args(argv)
    run: int = arguments.run(arguments)
    return run


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=PROG,
        description="Runs on a training host: a task of a job, the extraction of a model's graph, or the fork server.",
        example=f"{PROG} graph --model resnet20 --batch-size 32 --setting cpu-p2w2-1g --update sync --out g.parquet",
    )
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART", parser_class=PartParser)
    _task_arguments(parts.add_parser("task", help="run one task of a job"))
    _graph_arguments(parts.add_parser("graph", help="write the training graph of a worker as Parquet"))
    warm = parts.add_parser("warm", help="fork server: load a framework once, then fork the tasks requested on stdin")
    warm.add_argument("--framework", choices=tuple(FRAMEWORKS), default="tensorflow", help="(default: %(default)s)")
    warm.set_defaults(run=_warm)
    _calibrate_arguments(parts.add_parser("calibrate", help="time ops and transfers of this machine: driple-calibrate"))
    models = parts.add_parser("models", help="list the models of the zoo")
    models.set_defaults(run=_models)
    return parser


def _task_arguments(part: argparse.ArgumentParser) -> None:
    part.add_argument("--job", type=Path, required=True, help="job file; all tasks of a job read the same file")
    part.add_argument("--task", required=True, help="name of this task: ps:0, worker:1, ...")
    part.add_argument("--out", type=Path, required=True, help="folder for steps.jsonl, ready.json and finished.json")
    part.add_argument("--graph", type=Path, help="file for the graph that a worker trained")
    part.add_argument(
        "--watch-stdin", action="store_true", help="end when stdin closes, with the process that started it"
    )
    part.set_defaults(run=_task)


def _graph_arguments(part: argparse.ArgumentParser) -> None:
    source = part.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model", nargs="+", help="names of the zoo, or file.py:function; with several, --out is a folder"
    )
    source.add_argument("--all", action="store_true", help="every model of the zoo; --out is a folder")
    source.add_argument("--job", type=Path, help="use the workload and setting of a job file")
    source.add_argument("--graphdef", type=Path, help="convert a GraphDef (.pb or .pbtxt)")
    source.add_argument("--torch", metavar="FILE.py:FUNCTION", help="your own torch model (docs/guides/predicting.md)")
    source.add_argument("--onnx", type=Path, metavar="FILE", help="convert an ONNX file, and derive its backward pass")
    part.add_argument("--out", type=Path, required=True, help="Parquet file to write; a folder with --all")
    part.add_argument("--setting", default="cpu-p1w1-1g", help="setting such as v100-p2w2-pcie (default: %(default)s)")
    part.add_argument("--task", default="worker:0", help="worker whose graph is written (default: %(default)s)")
    part.add_argument("--batch-size", type=int, help="examples per worker and step (default: 32)")
    part.add_argument("--dataset", help=f"one of {', '.join(DATASETS)}; default: that of the model")
    part.add_argument("--size", type=int, help="image side or sequence length (default: that of the model)")
    part.add_argument("--width", type=float, default=1.0, help="multiplier of channels or units (default: %(default)s)")
    part.add_argument("--optimiser", choices=OPTIMISERS, default="momentum", help="(default: %(default)s)")
    part.add_argument("--update", choices=UPDATES, default="sync", help="update mode (default: %(default)s)")
    part.add_argument(
        "--sharding", choices=SHARDINGS, default="balanced", help="variable placement (default: %(default)s)"
    )
    part.add_argument("--framework", choices=tuple(FRAMEWORKS), help="(default: the first one of the strategy)")
    part.add_argument("--jobs", type=int, default=1, help="processes, for several models (default: %(default)s)")
    part.set_defaults(run=_graph)


def _calibrate_arguments(part: argparse.ArgumentParser) -> None:
    part.add_argument("--device", type=_device, default=CPU_DEVICE, help="cpu or gpu:0 (default: %(default)s)")
    part.add_argument("--threads", type=int, default=0, help="intra-op threads (default: those of TensorFlow)")
    part.add_argument("--quick", action="store_true", help="the short form")
    part.add_argument("--watch-stdin", action="store_true", help="end when stdin closes")
    part.add_argument("--out", type=Path, required=True, help="JSON file to write")
    part.set_defaults(run=_calibrate)


def _device(text: str) -> str:
    number = text[len(GPU_DEVICE) :] if text.startswith(GPU_DEVICE) else "0" if text == CPU_DEVICE else ""
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"expected {CPU_DEVICE} or {GPU_DEVICE}<number>, got {text!r}")
    return text


def _task(arguments: argparse.Namespace) -> NoReturn:
    from driple.workloads.runtime.task import run_job_file

    run_job_file(
        arguments.job,
        arguments.task,
        arguments.out,
        graph_file=arguments.graph,
        watch_stdin=arguments.watch_stdin,
    )


def _graph(arguments: argparse.Namespace) -> int:
    require("pyarrow")
    from driple.contracts.setting import Setting
    from driple.workloads.graphs import extract
    from driple.workloads.runtime.job import job_without_hosts, read_job, workload_of

    if arguments.graphdef is not None:
        return extract.from_graphdef(arguments.graphdef, arguments.out)
    if arguments.torch is not None or arguments.onnx is not None:
        return _imported_graph(arguments)
    if arguments.job is not None:
        return extract.from_job(read_job(arguments.job), arguments.task, arguments.out)
    setting = Setting.parse(arguments.setting)
    jobs: dict[str, JobSpec] = {}
    for model in dict.fromkeys(MODELS if arguments.all else arguments.model):
        # With --all, --size applies to the models that have a size.
        sizeless = arguments.all and ordinary_size(MODELS[model], DATASETS[MODELS[model].datasets[0]]) is None
        code_path = model.rpartition(":")[0] or None
        workload = workload_of(
            model,
            arguments.dataset,
            BATCH_SIZE if arguments.batch_size is None else arguments.batch_size,
            size=None if sizeless else arguments.size,
            code_path=code_path,
            optimiser=arguments.optimiser,
            update=arguments.update,
            width=arguments.width,
            sharding=arguments.sharding,
            strategy=default_strategy(setting.servers),
            framework=arguments.framework,
        )
        jobs[_new_name(model, jobs)] = job_without_hosts(setting, workload, code_path=code_path)
    if arguments.jobs < 1:
        raise BadInput(f"--jobs: expected 1 or more, got {arguments.jobs}")
    if len(jobs) == 1:
        return extract.from_job(next(iter(jobs.values())), arguments.task, arguments.out)
    return extract.from_jobs(jobs, arguments.task, arguments.out, arguments.jobs)


def _imported_graph(arguments: argparse.Namespace) -> int:
    from driple.contracts.setting import Setting
    from driple.workloads.graphs.import_graph import ImportOptions, import_onnx, import_torch

    options = ImportOptions(
        setting=Setting.parse(arguments.setting),
        batch_size=arguments.batch_size,
        optimiser=arguments.optimiser,
        sharding=arguments.sharding,
        dataset=arguments.dataset,
        size=arguments.size,
        width=arguments.width,
    )
    if arguments.torch is not None:
        return import_torch(arguments.torch, options, arguments.out)
    return import_onnx(arguments.onnx, options, arguments.out)


def _new_name(model: str, taken: Container[str]) -> str:
    """The file name of a graph: for own models stem and function, with a number if the name is taken."""
    path, colon, function = model.rpartition(":")
    name = f"{Path(path).stem}:{function}" if colon else model
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if each not in taken)


def _calibrate(arguments: argparse.Namespace) -> int:
    require("tensorflow")
    from driple.contracts.formats.calibration_result import write_calibration
    from driple.workloads.microbench.machine_times import calibrate
    from driple.workloads.runtime.watchdog import when_stdin_closes

    def say(done: int, parts: int, name: str) -> None:
        print(f"{done}/{parts} {name}", flush=True)

    if arguments.watch_stdin:
        when_stdin_closes(lambda: os._exit(1))
    write_calibration(calibrate(arguments.device, arguments.threads, arguments.quick, say), arguments.out)
    return 0


def _warm(arguments: argparse.Namespace) -> int:
    from driple.workloads.runtime.forkserver import serve_stdin

    return serve_stdin(arguments.framework)


def _models(_: argparse.Namespace) -> int:
    print(f"{'model':22} {'family':12} {'dataset':10} size")
    for model in MODELS.values():
        for dataset in model.datasets:
            size = ordinary_size(model, DATASETS[dataset])
            print(f"{model.name:22} {model.family:12} {dataset:10} {size or '-'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
