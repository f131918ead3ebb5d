"""Inlines the functions that the nodes of a GraphDef call.

A call (PartitionedCall, StatefulPartitionedCall, While, If, Case, or an op named after a function) stays as an op. The
ops of the function are added after it: they take the inputs of the call, and the call takes their results. So a loop
body counts once, however often it runs, and both branches of a condition count. Functions that are not called by these
ops (of input pipelines, of gradients) are not inlined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driple.contracts.errors import BadInput, shown
from driple.pipeline.graph.graphdef_proto import Message

MAX_DEPTH = 40
MAX_NODES = 500_000
# Number of leading inputs that are not arguments of the function: the selector of a condition.
_CALLS = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile"), 0),
    **dict.fromkeys(("If", "StatelessIf", "Case", "StatelessCase"), 1),
}


@dataclass
class Node:
    """One op of a GraphDef."""

    name: str
    op: str
    device: str
    inputs: list[tuple[str, int]]
    """Data inputs: op and output. Inside a function outputs are not numbered: 0."""
    attributes: Mapping[str, Message]
    """AttrValue by name. Use `get`: protobuf adds a missing key that is looked up with brackets."""


def inline_functions(graph: Message) -> list[Node]:
    """All nodes, those of a called function after the call. Raises BadInput, as for a recursive function."""
    inliner = _Inliner({function.signature.name: function for function in graph.library.function})
    inliner.add(graph.node, "", {}, "", 0)
    return inliner.nodes


class _Inliner:
    def __init__(self, functions: dict[str, Message]) -> None:
        self.nodes: list[Node] = []
        self._functions = functions

    def add(
        self, messages: Sequence[Message], prefix: str, arguments: dict[str, tuple[str, int]], device: str, depth: int
    ) -> None:
        if depth > MAX_DEPTH:
            raise BadInput(f"functions that call functions more than {MAX_DEPTH} deep (one that calls itself?)")
        if len(self.nodes) + len(messages) > MAX_NODES:
            raise BadInput(f"more than {MAX_NODES} ops with its functions inlined")
        for message in messages:
            node = _node(message, prefix, arguments, device)
            self.nodes.append(node)
            returned: list[tuple[str, int]] = []
            for position, name in enumerate(_called(node, self._functions)):
                returned += self._inline(node, name, f"{node.name}/{name}#{position}/", depth)
            node.inputs = node.inputs[: _CALLS.get(node.op, 0)] + returned if returned else node.inputs

    def _inline(self, call: Node, name: str, prefix: str, depth: int) -> list[tuple[str, int]]:
        """Adds the ops of a function and returns the sources of its results."""
        function = self._functions[name]
        names = [argument.name for argument in function.signature.input_arg]
        arguments = dict(zip(names, call.inputs[_CALLS.get(call.op, 0) :], strict=False))
        self.add(function.node_def, prefix, arguments, call.device, depth + 1)
        returned = (argument.name for argument in function.signature.output_arg)
        results = [function.ret[argument] for argument in returned if argument in function.ret]
        found = [_input(text, prefix, arguments) for text in results]
        unfed = set(names) - set(arguments)
        return [item for text, item in zip(results, found, strict=True) if text.partition(":")[0] not in unfed]


def _node(message: Message, prefix: str, arguments: dict[str, tuple[str, int]], device: str) -> Node:
    name, op = message.name, message.op
    if not name or not op:
        raise BadInput(f"a node without {'an op' if name else 'a name'}{f': {shown(name)}' if name else ''}")
    inputs = [_input(text, prefix, arguments) for text in message.input if not text.startswith("^")]
    return Node(prefix + name, op, message.device or device, inputs, message.attr)


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
    references = [value.func for value in values if value.HasField("func")]
    references += [reference for value in values for reference in value.list.func]
    return [reference.name for reference in references if reference.name in functions]
