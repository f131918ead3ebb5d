"""Parses YAML into a tree of values with line numbers.

It uses the event stream of the safe loader. `yaml.safe_load` accepts duplicate keys, reads `010` as 8, `1:30` as 90 and
`no` as false, drops line numbers, and follows aliases and nesting without limit. Here scalars follow YAML 1.2, tags are
refused, and size and depth are limited, also after aliases.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driple.contracts.errors import BadInput, Fault, FileFaults, shown

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 24

# The parser of libyaml, if available: ten times faster, same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# With more than 15 digits, a float is no longer exact.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,14})", re.ASCII)
_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]{0,14})(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][-+]?[0-9]{1,2})?", re.ASCII)
_WORDS: dict[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, eq=False)
class Node:
    """A value with its line. An alias gives the same Node again."""

    value: Any  # a scalar, a list of Nodes, or a dict of text to Node
    line: int | None  # None for a value that comes from no file
    size: int = 1  # number of nodes of this subtree, with aliases expanded
    depth: int = 1

    def plain(self) -> Any:
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value


def node_of(value: Any) -> Node:
    """Plain Python values as nodes. Anything that is not a scalar becomes its text, such as a Path or a Setting."""
    if isinstance(value, Mapping):
        return Node({str(key): node_of(item) for key, item in value.items()}, None)
    if isinstance(value, (list, tuple)):
        return Node([node_of(item) for item in value], None)
    return Node(value if value is None or isinstance(value, (str, int, float)) else str(value), None)


def read_file(path: Path, name: str) -> Node:
    """Reads a YAML document; `name` is for messages. Raises BadInput if unreadable, FileFaults if it is not YAML."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise BadInput(f"{name}: not a regular file")
        if info.st_size > MAX_BYTES:
            raise BadInput(f"{name}: {info.st_size} bytes; an experiment file has at most {MAX_BYTES}")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)  # it may have grown since
    except (OSError, ValueError) as error:
        raise BadInput(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return parse(data, name)


def parse(data: bytes, name: str) -> Node:
    """Parses the bytes of one YAML document; see `read_file`."""
    if len(data) > MAX_BYTES:
        raise BadInput(f"{name}: more than {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileFaults([Fault(name, line, "", f"not UTF-8 text (byte {error.start})")]) from None
    try:
        return _Builder(name).build(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise FileFaults([Fault(name, mark.line + 1 if mark else None, "", f"not valid YAML: {reason}")]) from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise FileFaults([Fault(name, None, "", f"not valid YAML: {reason}")]) from None


@dataclass
class _Open:
    line: int
    is_mapping: bool
    anchor: str | None
    parts: list[Node]


class _Builder:
    """Builds Nodes from events, without recursion."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.anchors: dict[str, Node | None] = {}
        self.open: list[_Open] = []
        self.root: Node | None = None

    def build(self, text: str) -> Node:
        documents = 0
        for event in yaml.parse(text, Loader=_LOADER):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.fault(line, "a second document begins here; expected one")
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self.start(event, line)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self.end()
            elif isinstance(event, yaml.ScalarEvent):
                self.refuse_tag(event, line)
                self.add(Node(_scalar(event), line), event.anchor)
            elif isinstance(event, yaml.AliasEvent):
                self.alias(event.anchor, line)
        return self.root or Node(None, 1)

    def start(self, event: Any, line: int) -> None:
        self.refuse_tag(event, line)
        if len(self.open) >= MAX_DEPTH:
            raise self.fault(line, f"nested deeper than {MAX_DEPTH} levels")
        if event.anchor:
            self.anchors[event.anchor] = None  # known, not yet complete
        self.open.append(_Open(line, isinstance(event, yaml.MappingStartEvent), event.anchor, []))

    def end(self) -> None:
        done = self.open.pop()
        size = 1 + sum(part.size for part in done.parts)
        depth = 1 + max((part.depth for part in done.parts), default=0)
        if size > MAX_NODES or depth > MAX_DEPTH:
            what = f"{MAX_NODES} values" if size > MAX_NODES else f"{MAX_DEPTH} levels"
            raise self.fault(done.line, f"more than {what}, aliases followed")
        value: Any = self.mapping(done.parts) if done.is_mapping else done.parts
        self.add(Node(value, done.line, size, depth), done.anchor)

    def alias(self, anchor: str | None, line: int) -> None:
        if anchor is None or anchor not in self.anchors:
            raise self.fault(line, f"alias *{anchor} has no anchor")
        node = self.anchors[anchor]
        if node is None:
            raise self.fault(line, f"alias *{anchor} is inside its own anchor")
        self.add(node, None)

    def add(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = node
        if self.open:
            self.open[-1].parts.append(node)
        else:
            self.root = node

    def mapping(self, parts: list[Node]) -> dict[str, Node]:
        """A dictionary from alternating keys and values. `<<` merges, but never replaces an explicit key."""
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            if type(key.value) not in (str, int):
                raise self.fault(key.line, f"expected a plain key, got {shown(key.plain())}")
            name = str(key.value)
            if name == "<<":
                for source in value.value if isinstance(value.value, list) else [value]:
                    if not isinstance(source.value, dict):
                        raise self.fault(key.line, f"<<: expected a mapping to merge, got {shown(source.plain())}")
                    for inherited in source.value:
                        merged.setdefault(inherited, source.value[inherited])
            elif name in own:
                raise self.fault(key.line, f"key {shown(name)} appears twice (first on line {own[name].line})")
            else:
                own[name] = value
        return {**merged, **own}

    def refuse_tag(self, event: Any, line: int) -> None:
        if event.tag is not None:
            raise self.fault(line, f"tag {shown(event.tag)}: tags are not used here; write the plain value")

    def fault(self, line: int | None, message: str) -> FileFaults:
        return FileFaults([Fault(self.name, line, "", message)])


def _scalar(event: Any) -> object:
    if not event.implicit[0]:  # quoted or block text
        return event.value
    text = event.value
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text
