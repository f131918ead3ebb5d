"""The options of driple-predict about the training job: how long it trains, what it costs, what limits it."""

from __future__ import annotations

import argparse
import re
from typing import Any

from driple.contracts.errors import BadInput, shown
from driple.contracts.setting import MAX_TASKS_OF_A_ROLE

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Adds the group."""
    add = parser.add_argument_group("the training job").add_argument
    add("--epochs", metavar="N", help="passes over the examples: also epoch and total time")
    add("--examples", metavar="N", help="of an epoch; goes with --epochs")
    add(
        "--price-per-hour",
        nargs="+",
        action="extend",
        default=[],
        metavar="PRICE",
        help="of the whole cluster: one, one for each setting, or SETTING=PRICE; also the cost",
    )
    add("--price-per-worker-hour", metavar="PRICE", help="of each worker, instead; servers cost nothing of their own")
    add("--deadline", metavar="TIME", help="such as 8h or 90min: rank the settings by the probability to meet it")
    add("--budget", metavar="AMOUNT", help="the same for the cost")
    add("--start-up", metavar="TIME", help="besides the steps, such as 30s (default: from measured runs in --datasets)")
    add(
        "--workers",
        nargs="+",
        action="extend",
        default=[],
        metavar="N",
        help="each setting with each number of workers, such as 1 2 4 8 or 1-8: where does adding one stop paying off?",
    )


def is_price(text: str) -> bool:
    """Whether it has the form of a price."""
    return _NUMBER.fullmatch(text.rpartition("=")[2]) is not None


def is_worker_count(text: str) -> bool:
    """Whether it is a number of workers, or a range."""
    return _RANGE.fullmatch(text) is not None


def plan_arguments(arguments: dict[str, Any]) -> None:
    """Converts the texts of these options to what `predict` takes, in place.

    Raises:
        BadInput: one is not a number.
    """
    for name in ("epochs", "price_per_worker_hour", "budget"):
        arguments[name] = None if arguments[name] is None else _number(name, arguments[name])
    examples = arguments["examples"]
    if examples is not None:
        if not (examples.isascii() and examples.isdigit() and len(examples) < 16):
            raise BadInput(f"--examples: expected a whole number, got {shown(examples)}")
        arguments["examples"] = int(examples)
    arguments["price_per_hour"] = _prices(arguments["price_per_hour"])
    arguments["workers"] = _workers(arguments["workers"])


def _prices(texts: list[str]) -> list[float] | dict[str, float] | None:
    named = [text for text in texts if "=" in text]
    if not named:
        return [_number("price_per_hour", text) for text in texts] or None
    if len(named) < len(texts):
        raise BadInput("--price-per-hour: give every price with its setting (SETTING=PRICE), or none")
    pairs = [text.split("=", 1) for text in named]
    return {setting: _number("price_per_hour", price) for setting, price in pairs}


def _workers(texts: list[str]) -> list[int] | None:
    found: list[int] = []
    for text in texts:
        match = _RANGE.fullmatch(text)
        first, last = (int(match[1]), int(match[2] or match[1])) if match is not None else (0, 0)
        if not 1 <= first <= last <= MAX_TASKS_OF_A_ROLE:
            raise BadInput(
                f"--workers: expected whole numbers from 1 to {MAX_TASKS_OF_A_ROLE} or a range such as 1-8, got"
                f" {shown(text)}"
            )
        found += range(first, last + 1)
    return found or None


def _number(name: str, text: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise BadInput(f"--{name.replace('_', '-')}: expected a number above 0, got {shown(text)}")
    return float(text)
