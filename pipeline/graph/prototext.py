"""Protocol buffers in their text form (.pbtxt), as much as a GraphDef needs, with no library and no TensorFlow."""

from __future__ import annotations

import re
from typing import Any

from driple.contracts.errors import BadInput, shown
from driple.pipeline.graph.graphdef_fields import BYTES, INT, TEXT, Kind, Message, dtype_number

MAX_DEPTH = 50
_TOKEN = re.compile(
    r"""(?:[\s,;]|\#[^\n]*)*                                   # blanks, separators and comments
        (?:(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
          |(?P<word>[\w.+-]+)
          |(?P<mark>[{}<>:\[\]/])
          |(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_CLOSES = {"{": "}", "<": ">"}


def parse(text: str, kind: Kind) -> Message:
    """The message in `text`.

    Raises:
        BadInput: cut short, or no such message; with the line.
    """
    return _Reader(text).message(kind, "", 0)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._begin = 0
        self._advance()

    def message(self, kind: Kind | None, closing: str, depth: int) -> Message:
        """Up to and with the closing mark; `kind` is None for one whose fields do not matter."""
        if depth > MAX_DEPTH:
            raise self._fault("messages inside messages without end")
        found: Message = {}
        fields = kind.by_name if kind else {}
        while self._value != closing or self._what not in ("mark", "end"):
            if self._what == "end":
                raise self._fault("cut short")
            name = self._name()
            what = fields.get(name)
            if self._value == ":" and self._what == "mark":
                self._advance()
            elif self._value not in ("{", "<"):
                raise self._fault(f"expected ':' or '{{' after {shown(name)}, got {shown(self._value)}")
            values = self._values(what, depth)
            if what is not None:
                found.setdefault(name, []).extend(values)
        if closing:
            self._advance()
        return found

    def _name(self) -> str:
        name = self._value
        if self._what == "mark" and name == "[":  # an extension: passed over
            while self._value != "]":
                if self._what == "end":
                    raise self._fault("cut short")
                self._advance()
        elif self._what != "word" or not (name[0].isalpha() or name[0] == "_"):
            raise self._fault(f"expected the name of a field, got {shown(name)}")
        self._advance()
        return name

    def _values(self, what: str | Kind | None, depth: int) -> list[Any]:
        if self._what != "mark" or self._value != "[":
            return [self._one(what, depth)]
        self._advance()
        values = []
        while self._what != "mark" or self._value != "]":
            if self._what == "end":
                raise self._fault("cut short")
            values.append(self._one(what, depth))
        self._advance()
        return values

    def _one(self, what: str | Kind | None, depth: int) -> Any:
        if self._what == "mark" and self._value in _CLOSES:
            if what is not None and not isinstance(what, Kind):
                raise self._fault("a message where a plain value is expected")
            closing = _CLOSES[self._value]
            self._advance()
            return self.message(what, closing, depth + 1)
        if isinstance(what, Kind):
            raise self._fault(f"expected a {what.name}, got {shown(self._value)}")
        if self._what == "string":
            return self._string(what)
        if self._what != "word":
            raise self._fault("cut short" if self._what == "end" else f"expected a value, got {shown(self._value)}")
        word = self._value
        value = _number(word) if what == INT else word
        if value is None or what in (TEXT, BYTES):
            raise self._fault(f"not a value for this field: {shown(word)}")
        self._advance()
        return value

    def _string(self, what: str | None) -> str | bytes:
        if what == INT:
            raise self._fault(f"expected a number, got {shown(self._value)}")
        whole = b""
        while self._what == "string":  # neighbours are one
            whole += _ESCAPE.sub(_unescaped, self._value[1:-1].encode("utf-8"))
            self._advance()
        if what == BYTES:
            return whole
        try:
            return whole.decode("utf-8")
        except UnicodeDecodeError:
            if what is None:
                return ""
            raise self._fault("a name that is not text") from None

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._begin)
        if match is None:
            raise self._fault("neither a name, a value nor a bracket (cut short?)")
        self._begin = match.end()
        self._what = match.lastgroup or "end"
        self._value = match[self._what]

    def _fault(self, message: str) -> BadInput:
        return BadInput(f"line {self._text.count(chr(10), 0, self._begin) + 1}: {message}")


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, plain = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if short or long:
        try:
            return chr(int(short or long, 16)).encode("utf-8")
        except (ValueError, OverflowError):  # half a pair, or beyond Unicode
            return b"?"
    return _PLAIN_ESCAPES.get(plain, plain)


def _number(word: str) -> int | None:
    """Of a number, a truth value or a type."""
    if word in ("true", "false"):
        return int(word == "true")
    if word.startswith("DT_"):
        return dtype_number(word) or 0
    try:
        return int(word, 0)
    except ValueError:
        return None
