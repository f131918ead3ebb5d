"""driple-train: a dataset to the inspector of a setting."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driple.contracts.command import CommandParser, command, printable
from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.dataset import SPLITS
from driple.contracts.formats.inspector import ROLES
from driple.contracts.setting import Setting
from driple.inspector.training.progress import ProgressBar
from driple.inspector.training.train_config import PRESET_NAMES, TUNE_PARTS
from driple.inspector.training.train_setting import TrainResult, evaluate_inspector, given, resolve, train

INTERRUPTED = 130


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Parses arguments, calls `train` or `evaluate_inspector`, and prints.

    Returns:
        0 done; 1 a file cannot be written; 2 bad input; 130 interrupted, with the best epoch so far written.
    """
    arguments = vars(parser().parse_args(argv))
    as_json, only_evaluate, show, _ = (arguments.pop(one) for one in ("json", "evaluate", "show_config", "version"))
    arguments["settings"] = tuple(arguments.pop("set"))
    if show:
        print(_effective(arguments), end="")
        return 0
    bar = ProgressBar()
    if only_evaluate:
        result = evaluate_inspector(**_without_training(arguments), say=bar.say)
    else:
        result = _trained(arguments, bar)
    if result.interrupted:
        return INTERRUPTED
    _print(result, as_json)
    return 0


def parser() -> CommandParser:
    """All options."""
    made = CommandParser(
        prog="driple-train",
        description="Train the inspector of a setting on its dataset, from scratch or by transfer from another\n"
        "setting, and print its errors beside those of baselines. Everything else about the network and the\n"
        "training is set with --config and --set; --show-config prints all keys with their values.",
        example="driple-train --setting v100-p1w2-pcie --ensemble 5 --set network.layer=gin",
    )
    add = made.add_argument
    add("--setting", required=True, metavar="NAME", help="such as v100-p1w2-pcie")
    add("--datasets", type=Path, default=Path("datasets"), metavar="DIR", help="folder, or file (default: %(default)s)")
    add("--output", type=Path, default=Path("inspectors"), metavar="DIR", help="inspectors (default: %(default)s)")
    add("--role", choices=ROLES, default=ROLES[0], help="the tasks to predict (default: %(default)s)")
    add("--split", choices=SPLITS, help=f"how test workloads are held out (default: {SPLITS[0]})")
    add("--seed", type=_seed, default=0, metavar="N", help="random seed (default: %(default)s)")
    add("--preset", choices=PRESET_NAMES, help="all other choices at once (default: driple)")
    add("--ensemble", type=int, metavar="N", help="networks to average; with 2 or more, predictions have a spread")
    add("--epochs", type=int, metavar="N", help="at most")
    add("--resume", action="store_true", help="continue an interrupted training")
    add("--evaluate", action="store_true", help="do not train: evaluate the inspector that is there")
    add("--tune", type=_positive, metavar="N", help="search hyper-parameters in N trials first")
    add("--config", type=Path, metavar="FILE", help="YAML with further choices, such as network: {layer: gin}")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="one further choice, such as network.layer=gin")
    add("--show-config", action="store_true", help="print the effective configuration as YAML for --config, and exit")
    add("--json", action="store_true", help="print the report as JSON")
    group = made.add_argument_group("transfer")
    group.add_argument(
        "--transfer-from",
        metavar="FROM",
        help="start from the inspector of a setting or in a folder, or from a published checkpoint (.pkl)",
    )
    group.add_argument("--tune-part", choices=TUNE_PARTS, help="what is tuned; the rest is frozen (default: half)")
    group.add_argument("--compare-scratch", action="store_true", help="also train from scratch, and compare")
    return made


def _trained(arguments: dict[str, Any], bar: ProgressBar) -> TrainResult:
    from driple.inspector.training.interrupts import DeferredInterrupt

    if arguments["tune_part"] is not None and arguments["transfer_from"] is None:
        raise BadInput("--tune-part goes with --transfer-from")
    arguments["split"] = arguments["split"] or SPLITS[0]
    DeferredInterrupt.enabled = True
    try:
        return train(**arguments, progress=bar, say=bar.say)
    finally:
        DeferredInterrupt.enabled = False
        bar.clear()


def _effective(arguments: dict[str, Any]) -> str:
    names = ("preset", "ensemble", "epochs", "tune_part")
    found = given(arguments["config"], arguments["settings"], **{name: arguments[name] for name in names})
    where = arguments["role"], arguments["transfer_from"], arguments["output"]
    return resolve(found, str(Setting.parse(arguments["setting"])), *where)[1].to_yaml()


def _without_training(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an evaluation."""
    kept = {name: arguments[name] for name in ("setting", "datasets", "output", "role", "split")}
    for name, value in arguments.items():
        if name not in kept and value not in (None, False, (), 0):
            option = {"settings": "set"}.get(name, name).replace("_", "-")
            raise BadInput(f"--evaluate takes the inspector as it is: leave --{option} out")
    return kept


def _print(result: TrainResult, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.report, indent=1, allow_nan=False), flush=True)
    else:
        print("\n".join(map(printable, str(result).splitlines())), flush=True)
    if result.fault is not None:
        raise result.fault
    if not as_json and result.evaluation is not None:
        own = result.evaluation.split == result.inspector.split
        print()
        print(printable(f"-> {result.folder}" if own else f"{result.folder} keeps the report of its own split"))


def _positive(text: str) -> int:
    return _whole(text, 1, "at least 1")


def _seed(text: str) -> int:
    return _whole(text, 0, "0 or more, below 2^63")


def _whole(text: str, least: int, expected: str) -> int:
    value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    if value is None or not least <= value < 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number, {expected}, got {shown(text)}")
    return value


if __name__ == "__main__":
    sys.exit(main())
