"""Base class of all messages: a JSON object whose keys are the annotations of the class.

These are not dataclasses: creating some forty dataclasses takes longer than the rest of the agent's start.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple, Type, TypeVar

from driple.contracts.errors import BadInput, shown, unknown
from driple.contracts.json_scalar import at, expect

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        """For type checkers only."""
        return lambda cls: cls


M = TypeVar("M", bound="Message")
_NO_LIMITS: Dict[str, Tuple[float, float]] = {}
_SCALARS = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass_transform(kw_only_default=True)
class Message:
    """An annotation is a key, and its value the default. Subclasses of a message class cannot add keys."""

    limits = _NO_LIMITS  # least and greatest values, by key

    def __init__(self, **values: Any) -> None:
        """Takes the keys as keyword arguments. Type checkers verify them; `read` also verifies them at run time."""
        self.__dict__.update(values)

    @classmethod
    def read(cls: Type[M], value: Any, place: str) -> M:
        """Decodes a JSON value. Raises BadInput, which begins with `place`, for a wrong key or value."""
        kinds: Dict[str, str] = getattr(cls, "__annotations__", {})
        message = cls.__new__(cls)
        for key, item in expect(dict, value, place).items():
            if key not in kinds:
                raise BadInput(at(place, unknown("key", key, tuple(kinds))))
            message.__dict__[key] = _decoded(kinds[key], item, f"{place}.{key}", sys.modules[cls.__module__].__dict__)
        for key in kinds:
            if not hasattr(message, key):
                raise BadInput(at(place, f"key {key!r} is missing"))
        try:
            message.check()
        except BadInput as error:
            raise BadInput(at(place, str(error))) from None
        return message

    def check(self) -> None:
        """Raises BadInput for values that are out of range or contradict each other."""
        for key, (low, high) in self.limits.items():
            if not low <= getattr(self, key) <= high:
                raise BadInput(f"{key}: expected {low:g} to {high:g}, got {shown(getattr(self, key))}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


class Tagged(Message):
    """A message that is sent as `{"tag": {...}}`. The tag is the class name in snake case."""

    tag = ""
    bare = ""  # a message with only this key is sent as `{"tag": value}`

    def __init_subclass__(cls) -> None:
        cls.tag = snake_case(cls.__name__)

    def to_line(self) -> str:
        return encode({self.tag: getattr(self, self.bare) if self.bare else self})


def read_tagged(kinds: Sequence[Type[Tagged]], value: Any) -> Optional[Tagged]:
    """Decodes a message of one of these classes; None for another value. Raises BadInput for wrong content."""
    tag = next(iter(value), "") if isinstance(value, dict) else ""
    for kind in kinds:
        if kind.tag == tag:
            return kind.read({kind.bare: value[tag]} if kind.bare else value[tag], tag)
    return None


def encode(value: Any) -> str:
    """JSON of messages and of plain values that contain them."""
    return json.dumps(value, default=vars)


def snake_case(name: str) -> str:
    """`UndoLater` to `undo_later`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _decoded(kind: str, value: Any, place: str, scope: Mapping[str, Any]) -> Any:
    """Decodes by the text of an annotation. Message classes are looked up in `scope`."""
    head, _, inner = kind.partition("[")
    if head in _SCALARS:
        return expect(_SCALARS[head], value, place)
    if head == "Optional":
        return None if value is None else _decoded(inner[:-1], value, place, scope)
    if head == "Tuple":
        inner = inner[: -len(", ...]")]
        return tuple(_decoded(inner, item, f"{place}[{i}]", scope) for i, item in enumerate(expect(list, value, place)))
    if head == "Dict":
        inner = inner[len("str, ") : -1]
        return {key: _decoded(inner, item, f"{place}.{key}", scope) for key, item in expect(dict, value, place).items()}
    return value if head == "Any" else scope[head].read(value, place)
