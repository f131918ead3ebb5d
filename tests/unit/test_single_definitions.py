"""Formats and messages that two packages share are defined once, in contracts/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from driple.contracts.formats import task_files
from driple.contracts.protocol import events, forkserver_messages, requests

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "orchestrator", "workloads", "pipeline", "inspector", "simulator")

SCHEMA_NAMES = ("SCHEMA", "SCHEMA_VERSION")
FORMAT_NAMES = {"driple.schema", "driple.schema_version", "inspector.json"}
TASK_FILES = {value for name, value in vars(task_files).items() if name.endswith(("_FILE", "_TABLE", "_LOG"))}
MESSAGES = {
    *(kind.do for kind in requests.Request.__subclasses__()),
    *(kind.tag for kind in (*events.EVENTS, *forkserver_messages.MESSAGES)),
} - {"error"}  # also the key of every refusal
SENDERS = ("agents", "orchestrator/attempt", "orchestrator/hosts", "workloads/runtime")

# Written and read by one package only.
PRIVATE = {
    "inspector/model/training_rows.py",
    "inspector/predict/prediction.py",
    "inspector/training/training_state.py",
}
# The same word, not a message.
OTHER_MEANING = {
    ("orchestrator/attempt/fetch.py", "steps"),  # a folder
    ("orchestrator/attempt/task_command.py", "run"),  # docker run
    ("orchestrator/attempt/task_start.py", "run"),  # a label of the trace
}


@cache
def trees(*folders: str) -> tuple[tuple[str, ast.Module], ...]:
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.append((path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(found)


def assigned(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names that are assigned, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        yield node.lineno, part.id


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """String and bytes literals, with their lines, but not docstrings and notes."""
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in notes and isinstance(node.value, str | bytes):
            value = node.value
            yield node.lineno, value if isinstance(value, str) else value.decode("utf-8", "replace")


@cache
def schema_offenders(*folders: str) -> set[str]:
    found = set()
    for path, tree in trees(*folders):
        found |= {f"{path}:{line} {name}" for line, name in assigned(tree) if name.endswith(SCHEMA_NAMES)}
        found |= {f"{path}:{line} {text!r}" for line, text in literals(tree) if text in FORMAT_NAMES}
    return {offender for offender in found if offender.partition(":")[0] not in PRIVATE}


def test_schema_names_and_versions_are_defined_in_contracts() -> None:
    assert sorted(schema_offenders(*PACKAGES)) == []


def test_names_of_a_tasks_files_are_defined_in_contracts() -> None:
    offenders = [
        f"{path}:{line} {text!r}"
        for path, tree in trees(*PACKAGES)
        for line, text in literals(tree)
        if text.rpartition("/")[2] in TASK_FILES
    ]
    assert offenders == []


def test_names_of_messages_are_defined_in_contracts() -> None:
    offenders = [
        f"{path}:{line} {text!r}"
        for path, tree in trees(*SENDERS)
        for line, text in literals(tree)
        if text in MESSAGES and (path, text) not in OTHER_MEANING
    ]
    assert offenders == []


def test_the_scan_sees_what_it_looks_for() -> None:
    """In contracts/ itself, where the definitions are."""
    assert any("SCHEMA_VERSION" in offender for offender in schema_offenders("contracts"))
    found = {text for _, tree in trees("contracts") for _, text in literals(tree)}
    assert found >= TASK_FILES and len(TASK_FILES) == 8
    assert {"run", "stop", "started", "ended", "undo_later"} <= MESSAGES
    sample = ast.parse('"""ready"""\nx: int = 1\nA, B_SCHEMA = b"ready", f"{x}/steps.jsonl"')
    assert {name for _, name in assigned(sample)} == {"x", "A", "B_SCHEMA"}
    assert {text for _, text in literals(sample)} == {"ready", "/steps.jsonl"}
