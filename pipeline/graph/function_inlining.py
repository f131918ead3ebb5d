"""The nodes of a GraphDef with the functions that they call laid open.

A call (PartitionedCall, StatefulPartitionedCall, While, If, Case, or an op that is itself the name of a function) stays
as an op. The ops of what it calls are put beside it: they take what the call was given and the call takes what they
return. So a body counts once, however often it would run, and both branches of a choice count. Functions that are no
calls (of an input pipeline, of a gradient) stay shut, as part of their op.
"""

from __future__ import annotations

from dataclasses import dataclass

from driple.contracts.errors import BadInput, shown
from driple.pipeline.graph.graphdef_fields import Message

MAX_DEPTH = 40
MAX_NODES = 500_000
# How many of a call's inputs are not arguments of what it calls: a choice has its selector first.
_CALLS = {
    "PartitionedCall": 0,
    "StatefulPartitionedCall": 0,
    "While": 0,
    "StatelessWhile": 0,
    "If": 1,
    "StatelessIf": 1,
    "Case": 1,
    "StatelessCase": 1,
}


@dataclass
class Node:
    """One op of a GraphDef."""

    name: str
    op: str
    device: str
    inputs: list[tuple[str, int]]
    """Data inputs: op and which of its outputs. Inside a function the output is not numbered: 0."""
    attributes: dict[str, Message]


def laid_open(graph: Message) -> list[Node]:
    """All nodes, those of called functions behind their call.

    Raises:
        BadInput: a node without name or op, a function that calls itself, or more nodes than any graph has.
    """
    functions = {
        name: function
        for library in graph.get("library", [])
        for function in library.get("function", [])
        for signature in function.get("signature", [])
        for name in signature.get("name", [])
    }
    opened = _Opened(functions)
    opened.add(graph.get("node", []), "", {}, "", 0)
    return opened.nodes


class _Opened:
    def __init__(self, functions: dict[str, Message]) -> None:
        self.nodes: list[Node] = []
        self._functions = functions

    def add(
        self, messages: list[Message], prefix: str, arguments: dict[str, tuple[str, int]], device: str, depth: int
    ) -> None:
        if depth > MAX_DEPTH:
            raise BadInput(f"functions that call functions more than {MAX_DEPTH} deep (one that calls itself?)")
        if len(self.nodes) + len(messages) > MAX_NODES:
            raise BadInput(f"more than {MAX_NODES} ops with its functions laid open")
        for message in messages:
            node = _node(message, prefix, arguments, device)
            self.nodes.append(node)
            returned: list[tuple[str, int]] = []
            for position, name in enumerate(_called(node, self._functions)):
                returned += self._open(node, name, f"{node.name}/{name}#{position}/", depth)
            node.inputs = node.inputs[: _CALLS.get(node.op, 0)] + returned if returned else node.inputs

    def _open(self, call: Node, name: str, prefix: str, depth: int) -> list[tuple[str, int]]:
        """Adds the ops of a function; where its results come from."""
        function = self._functions[name]
        names = [
            argument
            for signature in function["signature"]
            for entry in signature.get("input_arg", [])
            for argument in entry.get("name", [])[:1]
        ]
        arguments = dict(zip(names, call.inputs[_CALLS.get(call.op, 0) :], strict=False))
        self.add(function.get("node_def", []), prefix, arguments, call.device, depth + 1)
        results = [text for entry in function.get("ret", []) for text in entry.get("value", [])]
        found = [_input(text, prefix, arguments) for text in results]
        unfed = set(names) - set(arguments)
        return [item for text, item in zip(results, found, strict=True) if text.partition(":")[0] not in unfed]


def _node(message: Message, prefix: str, arguments: dict[str, tuple[str, int]], device: str) -> Node:
    name, op = _last(message, "name"), _last(message, "op")
    if not name or not op:
        raise BadInput(f"a node without {'an op' if name else 'a name'}{f': {shown(name)}' if name else ''}")
    inputs = [_input(text, prefix, arguments) for text in message.get("input", []) if not text.startswith("^")]
    attributes = {_last(entry, "key"): _last_message(entry) for entry in message.get("attr", [])}
    return Node(prefix + name, op, _last(message, "device") or device, inputs, attributes)


def _input(text: str, prefix: str, arguments: dict[str, tuple[str, int]]) -> tuple[str, int]:
    name, _, output = text.partition(":")
    if name in arguments:
        return arguments[name]
    return prefix + name, int(output) if output.isascii() and output.isdigit() and len(output) < 6 else 0


def _called(node: Node, functions: dict[str, Message]) -> list[str]:
    if node.op in functions:
        return [node.op]
    if node.op not in _CALLS:
        return []
    values = [node.attributes[key] for key in sorted(node.attributes)]
    references = [item for value in values for item in value.get("func", [])]
    references += [item for value in values for part in value.get("list", []) for item in part.get("func", [])]
    names = [_last(item, "name") for item in references]
    return [name for name in names if name in functions]


def _last(message: Message, key: str) -> str:
    values = message.get(key)
    return str(values[-1]) if values else ""


def _last_message(entry: Message) -> Message:
    values: list[Message] = entry.get("value", [])
    return values[-1] if values else {}
