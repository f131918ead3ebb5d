"""The fingerprint of a machine: its form, and the comparison of two."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.fingerprint import COMPARED, MEASURES, Fingerprint, differs, read_fingerprint
from driple.contracts.formats.dataset import FINGERPRINT
from driple.contracts.json_values import to_plain

ONE = Fingerprint(
    cores=2,
    hash_bytes_per_s=1.8e9,
    deflate_bytes_per_s=2.8e7,
    core_speedup=1.9,
    copy_bytes_per_s=1.2e10,
    switch_s=4e-5,
    loopback_bytes_per_s=3e9,
    spread_pct={"switch_s": 12.5, "copy_bytes_per_s": 3.0},
)


def test_it_is_read_as_it_was_sent() -> None:
    assert read_fingerprint(to_plain(ONE)) == ONE
    assert ONE.compared_spread_pct == 3.0  # a round trip to another process is not compared


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_that_is_not_positive_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"fingerprint.{name}: expected more than 0, got 0"):
        read_fingerprint({**to_plain(ONE), name: 0.0})


@pytest.mark.parametrize("value", [None, [], {}, {**to_plain(ONE), "flavour": 1}, {**to_plain(ONE), "cores": "2"}])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(BadInput, match="^fingerprint"):
        read_fingerprint(value)


def test_the_difference_is_that_of_the_measure_that_differs_most() -> None:
    assert differs(ONE, ONE) == 0
    faster = replace(ONE, hash_bytes_per_s=1.05 * ONE.hash_bytes_per_s, copy_bytes_per_s=ONE.copy_bytes_per_s / 1.25)
    assert differs(ONE, faster) == differs(faster, ONE) == pytest.approx(0.25)
    for name in MEASURES:
        other = replace(ONE, **{name: 3 * getattr(ONE, name)})
        assert differs(ONE, other) == pytest.approx(2.0 if name in COMPARED else 0.0)


def test_versions_are_not_compared() -> None:
    with pytest.raises(BadInput, match="versions 1 and 2 cannot be compared"):
        differs(ONE, replace(ONE, version=2))


def test_every_field_has_a_column() -> None:
    assert {column.name for column in FINGERPRINT} == {f"fingerprint_{field.name}" for field in fields(Fingerprint)}
