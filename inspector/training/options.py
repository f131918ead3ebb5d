"""The command line of driple-train, and the config that it says."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from driple.contracts.command import CommandParser
from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.inspector import ROLES, SPLITS
from driple.inspector.model import model_config as choices
from driple.inspector.model.model_config import InspectorConfig, changed, preset

TUNE_PARTS = ("half", "mlp", "gru", "all")

NETWORK = (
    *(
        "layer",
        "gru",
        "depth",
        "shared",
        "jump",
        "readout",
        "readout_steps",
        "hidden",
        "mlp_layers",
        "facts",
        "plain",
        "most_added",
    ),
    *("activation", "start", "dropout"),
)
INPUTS = ("grouping", "features", "feature_scale", "target_scale")
TRAINING = (
    *("epochs", "patience", "learning_rate", "weight_decay", "decoupled", "batch_size", "shuffle", "watch", "clip"),
)


MOST_THREADS = 256
"""Far more than this ends in a crash of torch."""


def parser() -> CommandParser:
    """All options."""
    made = CommandParser(
        prog="driple-train",
        description="Train the inspector of a setting on its dataset, from scratch or from another setting's, and\n"
        "print its errors beside those of plain baselines. docs/INSPECTOR.md explains every choice.",
        example="driple-train --setting v100-p1w2-pcie",
    )
    add = made.add_argument
    add("--setting", required=True, metavar="NAME", help="which: v100-p1w2-pcie")
    add("--datasets", type=Path, default=Path("datasets"), metavar="DIR", help="folder, or file (default: %(default)s)")
    add("--output", type=Path, default=Path("inspectors"), metavar="DIR", help="inspectors (default: %(default)s)")
    add("--role", choices=ROLES, default="worker", help="whose metrics (default: %(default)s)")
    add("--split", choices=SPLITS, help="what is held back (default: architecture)")
    add("--seed", type=_seed, default=0, metavar="N", help="of everything drawn (default: %(default)s)")
    add("--preset", choices=tuple(choices.PRESETS), help="all choices below at once (default: driple)")
    add("--ensemble", type=int, metavar="N", help="networks that are averaged; from 2 on there is a spread")
    add("--resume", action="store_true", help="go on with a training that was interrupted or killed")
    add("--evaluate", action="store_true", help="do not train: errors of the inspector that is there")
    add(
        "--tune",
        type=_positive,
        metavar="N",
        help="search options in N trials first; goes on if repeated",
    )
    add("--json", action="store_true", help="the report as JSON")
    _transfer(made.add_argument_group("transfer"))
    _machine(made.add_argument_group("machine"))
    _inputs(made.add_argument_group("inputs and targets"))
    _network(made.add_argument_group("network"))
    _training(made.add_argument_group("training"))
    return made


def _transfer(group: Any) -> None:
    group.add_argument(
        "--transfer-from",
        metavar="FROM",
        help="start from the inspector of a setting or in a folder, or from a published checkpoint (.pkl)",
    )
    group.add_argument("--tune-part", choices=TUNE_PARTS, help="what is tuned then; the rest is frozen (default: half)")
    group.add_argument("--transfer-ratio", type=float, metavar="R", help="share of the layers that is frozen (0.5)")
    group.add_argument("--compare-scratch", action="store_true", help="also train from scratch, and compare")
    group.add_argument("--allow-other-setting", action="store_true", help="take a source that is not what was said")


def _machine(group: Any) -> None:
    group.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: %(default)s)")
    group.add_argument(
        "--execution",
        choices=choices.EXECUTIONS,
        default="auto",
        help="how neighbours are summed (default: %(default)s)",
    )
    group.add_argument("--threads", type=_positive, metavar="N", help="of torch (default: one if the network is small)")


def _inputs(group: Any) -> None:
    group.add_argument("--grouping", metavar="POLICY", help="of ops to nodes: uniform:20, sqrt, none, ...")
    group.add_argument("--features", choices=choices.FEATURE_KINDS, help="of a node")
    group.add_argument("--feature-scale", choices=choices.FEATURE_SCALES)
    group.add_argument("--target-scale", choices=choices.TARGET_SCALES)


def _network(group: Any) -> None:
    flag = argparse.BooleanOptionalAction
    group.add_argument("--layer", choices=choices.LAYERS, help="how a node takes up what its neighbours say")
    group.add_argument("--gru", choices=choices.GRUS, help="recurrent cell after each layer")
    group.add_argument("--depth", metavar="K", help="layers: a number, or N, N/2, N/3, log2N, sqrtN, ... of the nodes")
    group.add_argument("--shared", action=flag, help="layers share weights")
    group.add_argument("--jump", action=flag, help="the readout sees the states after every layer")
    group.add_argument("--readout", choices=choices.READOUTS, help="from nodes to the graph")
    group.add_argument("--readout-steps", metavar="K", help="of set2set, as --depth")
    group.add_argument("--hidden", type=int, metavar="N", help="size of a node's state")
    group.add_argument("--mlp-layers", type=int, metavar="N", help="from readout to targets")
    group.add_argument("--facts", action=flag, help="the MLP sees the facts of the workload")
    group.add_argument("--plain", action=flag, help="the network adds to what a plain model of the facts says")
    group.add_argument("--most-added", type=float, metavar="D", help="at most so far from it, over its typical error")
    group.add_argument("--activation", choices=("linear", "leaky"), help="of the outputs")
    group.add_argument("--start", choices=choices.STARTS, help="first weights")
    group.add_argument("--dropout", type=float, metavar="SHARE")


def _training(group: Any) -> None:
    flag = argparse.BooleanOptionalAction
    group.add_argument("--epochs", type=int, metavar="N", help="at most")
    group.add_argument("--patience", type=int, metavar="N", help="epochs without a better validation error")
    group.add_argument("--learning-rate", type=float, metavar="RATE")
    group.add_argument("--weight-decay", type=float, metavar="RATE")
    group.add_argument("--decoupled", action=flag, help="weight decay as AdamW has it")
    group.add_argument("--batch-size", type=int, metavar="N", help="graphs in a step")
    group.add_argument("--shuffle", action=flag, help="a new order every epoch")
    group.add_argument("--watch", choices=("nrmse", "loss"), help="validation error that says which epoch is best")
    group.add_argument("--clip", type=float, metavar="NORM", help="largest gradient; 0 for any")


def chosen(arguments: argparse.Namespace) -> dict[str, Any]:
    """The choices that the user made by name."""
    found = {name: getattr(arguments, name) for name in (*NETWORK, *INPUTS, *TRAINING, "ensemble")}
    return {name: value for name, value in found.items() if value is not None}


def config_of(base: InspectorConfig, made: dict[str, Any]) -> InspectorConfig:
    """The config with these choices.

    A depth that depends on the graph means layers that share weights, without jumps: these follow unless chosen.

    Raises:
        BadInput: a choice that cannot be, or that does not go with another.
    """
    from driple.inspector.network.depth import depends_on_graph

    wanted = dict(made)
    if "activation" in wanted:
        wanted["output"] = wanted.pop("activation")
    if depends_on_graph(wanted.get("depth", "1")):
        wanted = {"shared": True, "jump": False, **wanted}
    return changed(base, **wanted)


def check(arguments: argparse.Namespace) -> None:
    """Options that do not go together, or that no machine can follow.

    Raises:
        BadInput: such are given.
    """
    if arguments.threads is not None and arguments.threads > MOST_THREADS:
        raise BadInput(f"--threads: expected at most {MOST_THREADS}, got {arguments.threads}")
    if arguments.transfer_from is None:
        for name in ("tune_part", "transfer_ratio", "compare_scratch", "allow_other_setting"):
            given = getattr(arguments, name)
            if given is not None and given is not False:  # a ratio of 0 is given, too
                raise BadInput(f"--{name.replace('_', '-')} goes with --transfer-from")
    elif arguments.transfer_ratio is not None and arguments.tune_part not in (None, "half"):
        raise BadInput(f"--transfer-ratio goes with --tune-part half, not {arguments.tune_part}")
    elif arguments.tune:
        raise BadInput("--tune searches networks, and --transfer-from keeps its source's: give one of them")
    if arguments.evaluate:
        for name in ("resume", "tune", "transfer_from"):
            if getattr(arguments, name):
                raise BadInput(f"--evaluate does not train: leave --{name.replace('_', '-')} out")
        given = [name for name in ("preset",) if getattr(arguments, name)] + list(chosen(arguments))
        if given:
            raise BadInput(f"--evaluate takes the inspector as it is: leave --{given[0].replace('_', '-')} out")


def base_of(arguments: argparse.Namespace) -> InspectorConfig:
    """The preset."""
    return preset(arguments.preset or "driple")


def _positive(text: str) -> int:
    return _whole(text, 1, "at least 1")


def _seed(text: str) -> int:
    return _whole(text, 0, "0 or more, below 2^63")


def _whole(text: str, least: int, expected: str) -> int:
    value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    if value is None or not least <= value < 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number, {expected}, got {shown(text)}")
    return value
