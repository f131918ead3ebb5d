"""The fields of TensorFlow's GraphDef that we read, and how a message looks here.

A message is a dictionary from a field's name to the list of its values, in order. All else in a file is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Message = dict[str, list[Any]]

TEXT, BYTES, INT = "text", "bytes", "int"


@dataclass(frozen=True)
class Kind:
    """A kind of message: number, name and kind of its fields."""

    name: str
    fields: dict[int, tuple[str, str | Kind]] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, str | Kind]:
        """The same, for the text form."""
        return dict(self.fields.values())


DIM = Kind("Dim", {1: ("size", INT)})
SHAPE = Kind("TensorShapeProto", {2: ("dim", DIM), 3: ("unknown_rank", INT)})
TENSOR = Kind(
    "TensorProto",
    {
        1: ("dtype", INT),
        2: ("tensor_shape", SHAPE),
        4: ("tensor_content", BYTES),
        7: ("int_val", INT),
        10: ("int64_val", INT),
    },
)
FUNCTION_NAME = Kind("NameAttrList", {1: ("name", TEXT)})
LIST = Kind(
    "ListValue",
    {2: ("s", BYTES), 3: ("i", INT), 6: ("type", INT), 7: ("shape", SHAPE), 9: ("func", FUNCTION_NAME)},
)
VALUE = Kind(
    "AttrValue",
    {
        1: ("list", LIST),
        2: ("s", BYTES),
        3: ("i", INT),
        5: ("b", INT),
        6: ("type", INT),
        7: ("shape", SHAPE),
        8: ("tensor", TENSOR),
        10: ("func", FUNCTION_NAME),
    },
)
ATTR = Kind("AttrEntry", {1: ("key", TEXT), 2: ("value", VALUE)})
NODE = Kind("NodeDef", {1: ("name", TEXT), 2: ("op", TEXT), 3: ("input", TEXT), 4: ("device", TEXT), 5: ("attr", ATTR)})
ARGUMENT = Kind("ArgDef", {1: ("name", TEXT)})
SIGNATURE = Kind("OpDef", {1: ("name", TEXT), 2: ("input_arg", ARGUMENT), 3: ("output_arg", ARGUMENT)})
RET = Kind("RetEntry", {1: ("key", TEXT), 2: ("value", TEXT)})
FUNCTION = Kind("FunctionDef", {1: ("signature", SIGNATURE), 3: ("node_def", NODE), 4: ("ret", RET)})
LIBRARY = Kind("FunctionDefLibrary", {1: ("function", FUNCTION)})
GRAPH = Kind("GraphDef", {1: ("node", NODE), 2: ("library", LIBRARY)})

DTYPES = {
    1: ("DT_FLOAT", "float32"),
    2: ("DT_DOUBLE", "float64"),
    3: ("DT_INT32", "int32"),
    4: ("DT_UINT8", "uint8"),
    5: ("DT_INT16", "int16"),
    6: ("DT_INT8", "int8"),
    7: ("DT_STRING", "string"),
    8: ("DT_COMPLEX64", "complex64"),
    9: ("DT_INT64", "int64"),
    10: ("DT_BOOL", "bool"),
    11: ("DT_QINT8", "qint8"),
    12: ("DT_QUINT8", "quint8"),
    13: ("DT_QINT32", "qint32"),
    14: ("DT_BFLOAT16", "bfloat16"),
    15: ("DT_QINT16", "qint16"),
    16: ("DT_QUINT16", "quint16"),
    17: ("DT_UINT16", "uint16"),
    18: ("DT_COMPLEX128", "complex128"),
    19: ("DT_HALF", "float16"),
    20: ("DT_RESOURCE", "resource"),
    21: ("DT_VARIANT", "variant"),
    22: ("DT_UINT32", "uint32"),
    23: ("DT_UINT64", "uint64"),
    24: ("DT_FLOAT8_E5M2", "float8_e5m2"),
    25: ("DT_FLOAT8_E4M3FN", "float8_e4m3fn"),
    29: ("DT_INT4", "int4"),
    30: ("DT_UINT4", "uint4"),
}
REFERENCE = 100
"""Added to the number of a type: a reference to a variable of that type."""


def dtype_name(number: int) -> str | None:
    """`float32` for 1 and for its reference 101; None for a type that we do not know."""
    known = DTYPES.get(number - REFERENCE if number > REFERENCE else number)
    return known[1] if known else None


def dtype_number(text: str) -> int | None:
    """1 for `DT_FLOAT`, 101 for `DT_FLOAT_REF`."""
    base = text.removesuffix("_REF")
    number = next((number for number, (name, _) in DTYPES.items() if name == base), None)
    return number if number is None or base == text else number + REFERENCE
