"""This machine as a host."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import await_end

from driple.contracts.errors import HostError
from driple.orchestrator.hosts.base import Channel, Finished, Host
from driple.orchestrator.hosts.local import LocalHost


@pytest.fixture
def host() -> Iterator[LocalHost]:
    host: Host = LocalHost()  # the protocol is kept
    assert isinstance(host, LocalHost)
    host.open()
    yield host
    host.close()
    host.close()


def test_a_command_runs_to_its_end(host: LocalHost) -> None:
    done = host.run(
        ["sh", "-c", "cat; echo $1; echo words >&2; exit 3", "sh", "$(id) 'x'"], timeout_s=20, stdin=b"in\n"
    )
    assert done == Finished(3, b"in\n$(id) 'x'\n", b"words\n")


def test_a_command_that_never_ends(host: LocalHost, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"local: .sh -c .* did not end within 1 s"):
        host.run(["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; wait"], timeout_s=1)
    await_end(int((tmp_path / "pid").read_text()))


def test_a_command_that_is_not_there(host: LocalHost) -> None:
    with pytest.raises(HostError, match="local: cannot start 'no-such-command': No such file"):
        host.run(["no-such-command"], timeout_s=5)
    with pytest.raises(HostError, match="cannot start"):
        host.start(["no-such-command"])


def test_lines_go_both_ways(host: LocalHost) -> None:
    channel: Channel = host.start(["cat"])
    for line in ("one", "", "é" * 100_000):
        channel.send(line)
        assert channel.receive(20) == line
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    assert channel.exit_code is None
    channel.close()
    channel.close()
    assert channel.receive(5) is None
    host.close()
    assert channel.exit_code == 0


def test_a_process_that_ends(host: LocalHost) -> None:
    channel = host.start(["sh", "-c", "echo last; printf unfinished; echo words >&2; exit 4"])
    assert [channel.receive(20) for _ in range(3)] == ["last", "unfinished", None]
    assert (channel.exit_code, channel.last_words) == (4, "words\n")
    with pytest.raises(HostError, match=r"has ended \(exit code 4\)"):
        for _ in range(3):
            channel.send("x")


def test_floods_do_not_stop_it(host: LocalHost) -> None:
    script = (
        "import sys\nfor i in range(2000): sys.stderr.write('e' * 1000); print('o' * 1000, flush=True)\nprint('end')"
    )
    channel = host.start([sys.executable, "-c", script])
    while channel.receive(20) != "end":
        pass
    assert channel.receive(20) is None
    assert 0 < len(channel.last_words) <= 64 * 1024


def test_close_wakes_another_thread(host: LocalHost) -> None:
    channel = host.start(["cat"])
    heard: list[str | None] = []
    thread = threading.Thread(target=lambda: heard.append(channel.receive(None)))
    thread.start()
    channel.close()
    thread.join(20)
    assert heard == [None]


def test_files(host: LocalHost, tmp_path: Path, own_home: Path) -> None:
    host.put(b"\0content\xff", "~/a file", mode=0o750)
    assert (own_home / "a file").stat().st_mode & 0o777 == 0o750
    host.get("~/a file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"\0content\xff"
    with pytest.raises(HostError, match="local: cannot write .*/none/x: No such file"):
        host.put(b"", f"{tmp_path}/none/x")
    with pytest.raises(HostError, match="local: cannot copy .*/none/x"):
        host.get(f"{tmp_path}/none/x", tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]
