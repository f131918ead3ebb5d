from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.errors import HostError
from driple.orchestrator.hosts import text_lines
from driple.orchestrator.hosts.text_lines import Lines, Tail


@given(st.lists(st.binary(max_size=20).map(lambda piece: piece.replace(b"\xff", b"\n"))))
def test_lines_do_not_hang_on_how_the_stream_was_cut(pieces: list[bytes]) -> None:
    reader, found = Lines(), []
    for piece in pieces:
        reader.feed(piece)
        while (line := reader.pop()) is not None:
            found.append(line)
    whole = b"".join(pieces)
    *expected, rest = [part.decode("utf-8", "replace") for part in whole.split(b"\n")]
    assert (found, reader.rest()) == (expected, rest or None)


@pytest.mark.parametrize("ended", [b"", b"\n"])
def test_a_line_without_end_does_not_fill_the_memory(ended: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "MAX_LINE", 1 << 20)
    reader = Lines()
    reader.feed(b"x" * (1 << 20))
    assert reader.pop() is None
    reader.feed(b"x" + ended)
    with pytest.raises(HostError, match="more than 1 MB"):
        reader.pop()


def test_the_tail_is_the_end() -> None:
    tail = Tail(4)
    for piece in (b"abc", b"", b"defghijklmn", b"op"):
        tail.feed(piece)
    assert tail.content() == b"mnop"
