"""driple-predict: the resource use of a training job that has never run."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.command_guard import require
from driple.contracts.errors import BadInput, BadSetting
from driple.contracts.formats.inspector import ROLES
from driple.contracts.run_spec import SHARDINGS, UPDATES
from driple.contracts.setting import Setting
from driple.contracts.strategy import BACKENDS, FRAMEWORKS, STRATEGIES, TOPOLOGIES
from driple.contracts.zoo import DATASETS, OPTIMISERS
from driple.inspector.predict.plan_options import add_plan_options, is_price, is_worker_count, plan_arguments

if TYPE_CHECKING:
    from driple.inspector.predict.prediction import Predictions

UNUSED = ("matplotlib", "pandas")


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Parses arguments, calls `predict` and prints.

    Returns:
        0 done; 1 a graph could not be made; 2 bad input.
    """
    arguments = vars(_parser().parse_args(argv))
    _give_back_the_model(arguments)
    as_json, plot, _ = (arguments.pop(name) for name in ("json", "plot", "version"))
    arguments["batch_size"] = _sizes(arguments["batch_size"]) or None
    arguments["update"] = arguments["update"] or None
    plan_arguments(arguments)
    if plot is not None:
        require("matplotlib")
    alone = argv is None
    if alone:
        gc.disable()  # a tenth of what the imports take, in a process that ends soon
    with _without(*(UNUSED if alone and plot is None else ())):
        # Only now: --help must not wait for what the work needs.
        from driple.inspector.predict.predict_workload import predict

        found = predict(**arguments, say=_say)
    if plot is not None:
        _plot(plot, found)
    if as_json:
        print(json.dumps(found.to_json(), indent=1, allow_nan=False))
        return 0
    print("\n".join(map(printable, str(found).splitlines())))
    if plot is not None:
        print(f"\n-> {printable(str(plot))}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-predict",
        description="Predict burst and idle times, burst levels and the step time of a training job that has never\n"
        "run, from its graph. Several settings, batch sizes or update modes give a table that compares them. Epochs\n"
        "and examples give the time and the cost of the whole training as well.",
        example="driple-predict --setting cpu-p2w2-1g resnet56 --batch-size 64 --update sync",
    )
    add = parser.add_argument
    add("model", nargs="?", help="a model of the zoo, by name (python -m driple.workloads.cli models lists them)")
    add(
        "--setting",
        nargs="+",
        action="extend",
        required=True,
        metavar="NAME",
        help="the setting it would run on, such as v100-p1w2-pcie; or several",
    )
    add(
        "--batch-size",
        nargs="+",
        action="extend",
        default=[],
        metavar="N",
        help="examples per worker and step (default: 32); or several",
    )
    add("--update", nargs="+", action="extend", default=[], metavar="MODE", help="sync, async, or both (default: sync)")
    add("--inspectors", type=Path, metavar="DIR", help="(default: ./inspectors, then those installed with driple)")
    add("--role", choices=ROLES, default=ROLES[0], help="whose metrics (default: %(default)s)")
    add("--json", action="store_true", help="print JSON, in base units")
    add("--plot", type=Path, metavar="FILE.png", help="also draw a picture")
    add_plan_options(parser)
    _model_options(parser.add_argument_group("the model"))
    more = parser.add_argument_group("where things are")
    more.add_argument(
        "--datasets",
        type=Path,
        default=Path("datasets"),
        metavar="DIR",
        help="where the training rows of an inspector are looked up if it has none beside it (default: %(default)s)",
    )
    more.add_argument(
        "--measured",
        type=Path,
        metavar="DATASETS",
        help="also print what was measured: the workload's rows there",
    )
    more.add_argument(
        "--simulate",
        action="store_true",
        help="simulate, even if there is an inspector; without one, a setting with a device file is simulated anyway",
    )
    more.add_argument(
        "--anchors",
        type=Path,
        metavar="DATASETS",
        help="datasets of a few runs on your machine: their step times correct the time model",
    )
    more.add_argument(
        "--machine-of",
        metavar="SETTING",
        help="a measured setting, on whose machine the job would run (the setting itself, if it was measured)",
    )
    more.add_argument("--fresh", action="store_true", help="build the graph again, even if it is cached or stored")
    return parser


def _model_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--framework", choices=tuple(FRAMEWORKS), help="that trains a named model (the first that can on the setting)")
    add("--strategy", choices=tuple(STRATEGIES), help="(ps on a setting with servers, else allreduce)")
    add("--graph", type=Path, metavar="FILE", help="instead of a name: a GraphDef (.pb, .pbtxt), .onnx or our .parquet")
    add("--graph-device", metavar="DEVICE", help="whose ops in that file: worker:0 (default: the first worker)")
    add("--code", metavar="FILE.py:FUNCTION", help="instead of a name: your own model (docs/guides/workloads.md)")
    add("--torch", metavar="FILE.py:FUNCTION", help="instead of a name: your own torch model and its example inputs")
    add("--dataset", metavar="NAME", help=f"what it reads: {', '.join(DATASETS)} (the model's ordinary one)")
    add("--size", type=int, metavar="N", help="image side or sequence length (the model's ordinary one)")
    add("--width", type=float, metavar="X", help="multiplier of channels or units (1)")
    add("--optimiser", choices=OPTIMISERS, help="(momentum)")
    add("--sharding", choices=SHARDINGS, help="of variables over servers (balanced)")
    add("--topology", choices=TOPOLOGIES, help="of an all-reduce, which has no servers (ring)")
    add("--backend", choices=tuple(BACKENDS), help="what carries it (simulated: nccl in a ring of GPUs, else grpc)")


def _give_back_the_model(arguments: dict[str, Any]) -> None:
    """An option that takes several values also takes the name of the model, if it comes right after it."""
    if any(arguments[name] is not None for name in ("model", "graph", "code", "torch")):
        return
    for name, fits in _SEVERAL.items():
        values = arguments[name]
        others = [value for value in values if not fits(value)]
        if len(others) == 1 and len(values) > 1:
            values.remove(others[0])
            arguments["model"] = others[0]
            return


def _is_setting(text: str) -> bool:
    try:
        Setting.parse(text)
    except BadSetting:
        return False
    return True


_SEVERAL: Mapping[str, Callable[[str], bool]] = {
    "setting": _is_setting,
    "batch_size": str.isdigit,
    "update": UPDATES.__contains__,
    "price_per_hour": is_price,
    "workers": is_worker_count,
}
"""Options that take several values, and whether a text can be one of them."""


def _sizes(texts: Sequence[str]) -> list[int]:
    for text in texts:
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
            raise BadInput(f"--batch-size: expected whole numbers below 10^9, got {text!r}")
    return list(map(int, texts))


def _plot(path: Path, found: Predictions) -> None:
    from driple.inspector.predict.prediction_plot import draw

    draw(path, found)


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


class _Refuse:
    """An import finder that reports these modules as not installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"{name} is not wanted now", name=name)


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Makes the import of these modules fail.

    igraph imports matplotlib and pyarrow pandas, where there are such, for what we never ask of them: a third of the
    time from the shell to the answer. igraph would miss it for the rest of the process, so only a process that is ours
    alone does this.
    """
    refuse = _Refuse(names)
    sys.meta_path.insert(0, refuse)
    try:
        yield
    finally:
        sys.meta_path.remove(refuse)


if __name__ == "__main__":
    sys.exit(main())
