from __future__ import annotations

import re
import string
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.errors import BadInput, FileFaults
from driple.orchestrator.config.yaml_nodes import parse

# PyYAML writes the text 1e5 without quotes, and we read a number, as YAML 1.2 and JSON do.
words = st.text(string.ascii_letters + string.digits + " :#-[]{},&*!|>'\"%@`é模\n", max_size=12).filter(
    lambda word: not re.fullmatch(r"[-+]?\d+[eE][-+]?\d+", word)
)
scalars = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words.filter(lambda w: w != "<<"), inner, max_size=4),
)


@given(values)
def test_reads_what_yaml_writes(value: Any) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert parse(text.encode(), "f").plain() == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_a_clear_fault(data: bytes) -> None:
    try:
        parse(data, "f.yaml").plain()
    except BadInput as error:
        assert all(line.startswith("f.yaml") for line in error.lines())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", "010"), ("1:30", "1:30"), ("0x10", "0x10"), ("1_000", "1_000"), ("no", "no"), ("Yes", "Yes"),
        ("2026-11-16", "2026-11-16"), (".inf", ".inf"), (".nan", ".nan"), ("1e999", "1e999"), ("=", "="),
        ("12", 12), ("-3", -3), ("0.5", 0.5), (".5", 0.5), ("1.", 1.0), ("0.3333333333333333", 1 / 3),
        ("1e3", 1000.0), ("true", True), ("null", None), ("~", None),
        ("'12'", "12"),
        ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_scalars_are_what_they_look_like(text: str, value: object) -> None:
    found = parse(f"key: {text}".encode(), "f").plain()["key"]
    assert found == value
    assert type(found) is type(value)


def test_anchors_aliases_and_merges() -> None:
    text = """
    base: &base {a: 1, b: 2}
    other: &other {b: 3, c: 4}
    one: {<<: *base, b: 9}
    two: {<<: [*base, *other]}
    list: &list [x, y]
    again: *list
    """
    plain = parse(text.encode(), "f").plain()
    assert plain["one"] == {"a": 1, "b": 9}
    assert plain["two"] == {"a": 1, "b": 2, "c": 4}
    assert plain["again"] == ["x", "y"]


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse(b"\xef\xbb\xbfa: 1", "f").plain() == {"a": 1}


def test_lines() -> None:
    root = parse(b"# comment\na:\n  - 1\n  -\n    b: 2\n", "f")
    first, second = root.value["a"].value
    assert (first.line, second.line, second.value["b"].line) == (3, 5, 5)


def test_a_merge_of_a_scalar_and_a_key_that_is_a_list_are_faults() -> None:
    for text, message in (
        ("<<: 1", "expected a mapping to merge"),
        ("[a]: 1", "expected a plain key"),
        ("true: 1", "plain key"),
    ):
        with pytest.raises(FileFaults, match=message):
            parse(text.encode(), "f")
