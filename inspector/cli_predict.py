"""driple-predict: the 12 metrics of a model that has never run."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.errors import BadInput, BadSetting, UnknownName
from driple.contracts.run_spec import SHARDINGS, UPDATES
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, OPTIMISERS

if TYPE_CHECKING:
    from driple.inspector.predict.prediction import Prediction
    from driple.pipeline.graph.public import OpGraph

UNUSED = ("matplotlib", "pandas")


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Predicts.

    Returns:
        0 done; 1 a graph could not be made; 2 bad input.
    """
    arguments = _parser().parse_args(argv)
    _give_back_the_model(arguments)
    settings = _settings(arguments.setting)
    sizes, updates = _sizes(arguments.batch_size), _updates(arguments.update)
    alone = argv is None
    if alone:
        gc.disable()  # a tenth of what the imports take, in a process that ends soon
    with _without(*(UNUSED if alone else ())), _whole_installation():
        answers = _answers(arguments, settings, sizes, updates)
    if arguments.plot is not None:
        _plot(arguments.plot, answers)
    if arguments.json:
        from driple.inspector.predict.prediction import to_json

        print(json.dumps(to_json(answers), indent=1, allow_nan=False))
        return 0
    print("\n".join(map(printable, _lines(answers))))
    if arguments.plot is not None:
        print(f"\n-> {printable(str(arguments.plot))}")
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="driple-predict",
        description="Predict the 12 burst-idle-burst metrics of a training job that has never run, from its graph.\n"
        "Several settings, batch sizes or update modes give a table of what-ifs. docs/PREDICTING.md has more.",
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
        help="on what it would run: v100-p1w2-pcie; or several",
    )
    add(
        "--batch-size",
        nargs="+",
        action="extend",
        default=[],
        metavar="N",
        help="examples a worker takes in a step (32); or several",
    )
    add("--update", nargs="+", action="extend", default=[], metavar="MODE", help="sync, async, or both (sync)")
    add("--inspectors", type=Path, default=Path("inspectors"), metavar="DIR", help="(default: %(default)s)")
    add("--role", choices=("worker", "ps"), default="worker", help="whose metrics (default: %(default)s)")
    add("--json", action="store_true", help="as JSON, in base units")
    add("--plot", type=Path, metavar="FILE.png", help="also a picture")
    _model_options(parser.add_argument_group("the model"))
    more = parser.add_argument_group("where things are")
    more.add_argument(
        "--datasets",
        type=Path,
        default=Path("datasets"),
        metavar="DIR",
        help="for the training rows of an inspector that does not have them beside it (default: %(default)s)",
    )
    more.add_argument("--fresh", action="store_true", help="make the graph anew, even if it is in the cache")
    return parser


def _model_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--graph", type=Path, metavar="FILE", help="instead of a name: a GraphDef (.pb, .pbtxt) or our .parquet")
    add("--graph-device", metavar="DEVICE", help="whose ops in that file: worker:0 (default: the first worker)")
    add("--code", metavar="FILE.py:FUNCTION", help="instead of a name: your own model (docs/WORKLOADS.md)")
    add("--dataset", metavar="NAME", help=f"what it reads: {', '.join(DATASETS)} (the model's ordinary one)")
    add("--size", type=int, metavar="N", help="image side or sequence length (the model's ordinary one)")
    add("--width", type=float, metavar="X", help="multiplier of channels or units (1)")
    add("--optimiser", choices=OPTIMISERS, help="(momentum)")
    add("--sharding", choices=SHARDINGS, help="of variables over servers (balanced)")


def _give_back_the_model(arguments: argparse.Namespace) -> None:
    """An option that takes several values takes the model's name too, if that comes right after it."""
    if arguments.model is not None or arguments.graph is not None or arguments.code is not None:
        return
    for values, fits in (
        (arguments.setting, _is_setting),
        (arguments.batch_size, str.isdigit),
        (arguments.update, UPDATES.__contains__),
    ):
        others = [value for value in values if not fits(value)]
        if len(others) == 1 and len(values) > 1:
            values.remove(others[0])
            arguments.model = others[0]
            return


def _is_setting(text: str) -> bool:
    try:
        Setting.parse(text)
    except BadSetting:
        return False
    return True


def _settings(texts: Sequence[str]) -> tuple[Setting, ...]:
    return tuple(dict.fromkeys(Setting.parse(text) for text in texts))


def _sizes(texts: Sequence[str]) -> tuple[int, ...]:
    for text in texts:
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
            raise BadInput(f"--batch-size: expected whole numbers below 10^9, got {text!r}")
    return tuple(dict.fromkeys(map(int, texts)))


def _updates(texts: Sequence[str]) -> tuple[str, ...]:
    for text in texts:
        if text not in UPDATES:
            raise UnknownName("update", text, UPDATES)
    return tuple(dict.fromkeys(texts))


def _answers(
    arguments: argparse.Namespace, settings: tuple[Setting, ...], sizes: tuple[int, ...], updates: tuple[str, ...]
) -> list[Prediction]:
    # Only now: --help must not wait for what the work needs.
    from driple.inspector.model import store
    from driple.inspector.predict import graph_cache, request

    own = ":" in (arguments.model or "")
    asked = request.PredictionRequest(
        settings=settings,
        model=None if own else arguments.model,
        graph=arguments.graph,
        code=arguments.model if own else arguments.code,
        batch_sizes=sizes,
        updates=updates,
        dataset=arguments.dataset,
        size=arguments.size,
        width=arguments.width,
        optimiser=arguments.optimiser,
        sharding=arguments.sharding,
        graph_device=arguments.graph_device,
    )
    questions = request.questions(asked)
    folders = {str(one): store.find(arguments.inspectors, str(one), arguments.role) for one in settings}
    files = request.read_files(questions)
    wanted = [one.source for one in questions if isinstance(one.source, graph_cache.GraphRequest)]
    made = graph_cache.graphs_of(wanted, graph_cache.cache_folder(), say=_say, fresh=arguments.fresh)

    def graph_of(question: request.PredictionQuery) -> OpGraph:
        source = question.source
        return files[source] if isinstance(source, request.GraphFile) else made[source]

    from driple.inspector.predict.predictor import answers

    return answers(questions, folders, arguments.datasets, graph_of)


@contextmanager
def _whole_installation() -> Iterator[None]:
    """Says what to install where something is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("driple"):
            raise
        raise BadInput(
            f"predicting needs {error.name}, which is not installed: pip install 'driple[inspector]'"
        ) from None


def _lines(answers: Sequence[Prediction]) -> list[str]:
    if len(answers) == 1:
        from driple.inspector.predict import prediction_text

        return prediction_text.one(answers[0])
    from driple.inspector.predict import what_if

    return what_if.lines(answers)


def _plot(path: Path, answers: Sequence[Prediction]) -> None:
    try:
        from driple.inspector.predict.prediction_plot import draw
    except ImportError:
        raise BadInput("--plot: matplotlib is not installed: pip install 'driple[pipeline]'") from None
    draw(path, answers)


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


class _Refuse:
    """Stands before all that find modules, and finds that these are not there."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"{name} is not wanted now", name=name)


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Lets the import of these fail.

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
