"""The messages of TensorFlow that we read (GraphDef, Event), for the protobuf package, without TensorFlow.

Fields that are not listed are skipped. With the protobuf package a binary graph is read 2.4 to 4 times as fast as
with a parser in Python, in half the memory, and a text graph half as fast (`benchmarks/graphdef_reading.py`).
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from driple.contracts.errors import BadInput

Message = Any
"""A protobuf message: its classes are made at run time."""

# Type, name and number of each field; `*` repeats it, `<...>` is a map from strings, at most one `?` is set.
_FIELDS = {
    "Dim": "int64 size 1",
    "TensorShapeProto": "Dim* dim 2, bool unknown_rank 3",
    "TensorProto": (
        "DataType dtype 1, TensorShapeProto tensor_shape 2, bytes tensor_content 4, int32* int_val 7, "
        "int64* int64_val 10"
    ),
    "NameAttrList": "string name 1",
    "ListValue": "bytes* s 2, int64* i 3, DataType* type 6, TensorShapeProto* shape 7, NameAttrList* func 9",
    "AttrValue": (
        "?ListValue list 1, ?bytes s 2, ?int64 i 3, ?bool b 5, ?DataType type 6, ?TensorShapeProto shape 7, "
        "?TensorProto tensor 8, ?NameAttrList func 10"
    ),
    "NodeDef": "string name 1, string op 2, string* input 3, string device 4, <AttrValue> attr 5",
    "ArgDef": "string name 1",
    "OpDef": "string name 1, ArgDef* input_arg 2, ArgDef* output_arg 3",
    "FunctionDef": "OpDef signature 1, NodeDef* node_def 3, <string> ret 4",
    "FunctionDefLibrary": "FunctionDef* function 1",
    "GraphDef": "NodeDef* node 1, FunctionDefLibrary library 2",
    "Value": "bytes tag 1, ?float simple_value 2",
    "Summary": "Value* value 1",
    "Event": "int64 step 2, Summary summary 5",
}

_TYPES = str.split(
    "invalid float double int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 bfloat16 qint16 "
    "quint16 uint16 complex128 half resource variant uint32 uint64 float8_e5m2 float8_e4m3fn float8_e4m3fnuz "
    "float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 int2 uint2 float4_e2m1fn"
)
_OTHER_NAMES = {"float": "float32", "double": "float64", "half": "float16"}
_REFERENCE = 100
"""Added to the number of a type: a reference to a variable of that type."""


def parse(content: bytes, *, text: bool) -> Message:
    """The GraphDef in `content`, in binary or text form. Raises BadInput if it is none, or is cut short."""
    graph = message_class("GraphDef")()
    from google.protobuf import message, text_format

    try:
        if text:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in damaged strings
                text_format.Parse(content.decode("utf-8"), graph, allow_unknown_field=True)
        else:
            graph.ParseFromString(content)
    except UnicodeDecodeError:
        raise BadInput("not a GraphDef in text form: it is not text") from None
    except text_format.ParseError as error:
        raise BadInput(f"not a GraphDef in text form: line {error.GetLine()}: {_cause(error)}") from None
    except RecursionError:
        raise BadInput("not a GraphDef in text form: messages nested too deeply") from None
    except (message.DecodeError, ValueError):
        raise BadInput("not a GraphDef (cut short?)") from None
    return graph


def dtype_name(number: int) -> str | None:
    """`float32` for 1 and for its reference 101; None for an unknown type."""
    name = _TYPES[number % _REFERENCE] if 0 < number % _REFERENCE < len(_TYPES) else None
    return _OTHER_NAMES.get(name or "", name)


def _cause(error: Exception) -> str:
    return " ".join(str(error).partition(" : ")[2].split())[:200]


@cache
def message_class(name: str) -> Any:
    """The class of a message. Raises ModuleNotFoundError if protobuf is not installed."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="graph.proto", package="tensorflow", syntax="proto3")
    enum = file.enum_type.add(name="DataType")
    for number, kind in enumerate(_TYPES):
        enum.value.add(name=f"DT_{kind.upper()}", number=number)
        if number:
            enum.value.add(name=f"DT_{kind.upper()}_REF", number=number + _REFERENCE)
    for each, fields in _FIELDS.items():
        message = file.message_type.add(name=each)
        if "?" in fields:
            message.oneof_decl.add(name="value")
        for field in fields.split(", "):
            _add_field(message, *field.split())
    pool = descriptor_pool.DescriptorPool()  # of our own: TensorFlow has these names in the default one
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))


def _add_field(message: Any, kind: str, name: str, number: str) -> None:
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if kind[-1] in "*>" else field.LABEL_OPTIONAL
    if kind.startswith("?"):
        field.oneof_index = 0
    if kind.startswith("<"):
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "string", "key", "1")
        _add_field(entry, kind[1:-1], "value", "2")
        field.type, field.type_name = field.TYPE_MESSAGE, f".tensorflow.{message.name}.{entry.name}"
        return
    kind = kind.strip("?*")
    if kind[0].islower():
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    else:
        field.type = field.TYPE_ENUM if kind == "DataType" else field.TYPE_MESSAGE
        field.type_name = f".tensorflow.{kind}"
