"""Converts frozen dataclasses to and from plain JSON values, and computes their content hash.

Reading is strict: an unknown key, a missing key or a wrong type is an error with its place, so that a file of another
version is never partly understood.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Tuple, Type, TypeVar, Union, get_type_hints

from driple.contracts.errors import BadInput, unknown
from driple.contracts.json_scalar import at, expect
from driple.contracts.setting import Setting

T = TypeVar("T")
_SCALARS = (str, int, float, bool, type(None))


def to_plain(value: Any, *, omit_defaults: bool = False) -> Any:
    """Dataclasses to dictionaries, tuples to lists, settings to their text."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is Setting:
        return str(value)
    if dataclasses.is_dataclass(kind):
        return {
            name: to_plain(item, omit_defaults=omit_defaults)
            for name, default in _defaults(kind)
            if (item := getattr(value, name)) != default or not omit_defaults
        }
    if isinstance(value, (list, tuple)):
        return [to_plain(item, omit_defaults=omit_defaults) for item in value]
    if isinstance(value, Mapping):
        return {key: to_plain(item, omit_defaults=omit_defaults) for key, item in value.items()}
    return value


def content_hash(value: Any, version: int, digits: int = 12) -> str:
    """A hash of the content of `value`, without fields at their defaults.

    So a new option does not rename existing runs. A default must not change its meaning without a new `version`.
    """
    plain = {"version": version, "value": to_plain(value, omit_defaults=True)}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:digits]


def from_plain(kind: Type[T], value: Any, place: str = "") -> T:
    """The reverse of `to_plain`. Raises BadInput with the place in the document, the expected and the actual value."""
    result: T = _decode(kind, value, place)
    return result


def read_json_file(path: Path, decode: Callable[[Any], T]) -> T:
    """Reads a JSON file and converts it with `decode`. Raises BadInput, with the path first."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path}: not valid JSON (cut short?)") from None
    try:
        return decode(value)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


@lru_cache(maxsize=None)
def _defaults(kind: type) -> Tuple[Tuple[str, Any], ...]:
    """Field names with their defaults; dataclasses.MISSING if there is none."""
    return tuple(
        (field.name, field.default if field.default_factory is dataclasses.MISSING else field.default_factory())
        for field in dataclasses.fields(kind)
    )


_UNION = getattr(types, "UnionType", Union)  # the type of `X | None` from Python 3.10 on


def _decode(kind: Any, value: Any, place: str) -> Any:
    if kind is Setting:
        return _decode_setting(value, place)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, place)
    origin = getattr(kind, "__origin__", None)
    if origin is Union or type(kind) is _UNION:  # only Optional[X], or X | None, is used
        return None if value is None else _decode(kind.__args__[0], value, place)
    if origin is tuple:  # only Tuple[X, ...] is used
        items = expect(list, value, place)
        if kind.__args__[0] is float and set(map(type, items)) == {float} and all(map(math.isfinite, items)):
            return tuple(items)  # long lists of numbers are most of a large document
        return tuple(_decode(kind.__args__[0], item, f"{place}[{i}]") for i, item in enumerate(items))
    if origin is dict:
        mapping = expect(dict, value, place)
        return {key: _decode(kind.__args__[1], item, f"{place}.{key}") for key, item in mapping.items()}
    if kind is Any:
        return value
    return expect(kind, value, place)


def _decode_setting(value: Any, place: str) -> Setting:
    try:
        return Setting.parse(value)
    except BadInput as error:
        raise BadInput(at(place, str(error))) from None


def _decode_dataclass(kind: Any, value: Any, place: str) -> Any:
    mapping = expect(dict, value, place)
    hints = _hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in mapping:
        if key not in fields:
            raise BadInput(at(place, unknown("key", key, tuple(fields))))
    arguments = {}
    for name, field in fields.items():
        if name in mapping:
            arguments[name] = _decode(hints[name], mapping[name], f"{place}.{name}" if place else name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise BadInput(at(place, f"key {name!r} is missing"))
    try:
        return kind(**arguments)
    except BadInput as error:
        raise BadInput(at(place, str(error))) from None


@lru_cache(maxsize=None)
def _hints(kind: type) -> Dict[str, Any]:
    return get_type_hints(kind)
