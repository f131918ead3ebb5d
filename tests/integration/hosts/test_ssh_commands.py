"""Commands: words in, bytes out, and every way in which that can break."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import paramiko
import pytest
from sshd import Connect, Sshd, await_end, running_sshd

from driple.contracts.errors import HostError, HostLost
from driple.orchestrator.hosts.base import Channel, Finished, Host
from driple.orchestrator.hosts.ssh import SshHost

pytestmark = pytest.mark.integration

HOSTILE = [
    "",
    " ",
    "a b",
    "'\"\\",
    "line\nbreak\n",
    "$(id)`id`$HOME",
    "-n",
    "--",
    "!",
    "*",
    "~",
    "é日",
    "\udcff",
    "\r\t",
]
ECHO = "import os,sys; os.write(1, b'\\0'.join(os.fsencode(word) for word in sys.argv[1:]))"


def test_every_word_arrives_as_it_is(host: SshHost) -> None:
    done = host.run([sys.executable, "-c", ECHO, *HOSTILE], timeout_s=20)
    assert done.stdout.split(b"\0") == [os.fsencode(word) for word in HOSTILE]
    assert (done.exit_code, done.stderr) == (0, b"")


def test_streams_and_exit_code(host: SshHost) -> None:
    kept: Host = host  # the protocol is kept
    done = kept.run(["sh", "-c", "cat; echo words >&2; exit 3"], timeout_s=20, stdin=b"\0in\xff")
    assert done == Finished(3, b"\0in\xff", b"words\n")
    assert host.run(["no-such-command"], timeout_s=20).exit_code == 127
    assert host.run(["sh", "-c", "kill -9 $$"], timeout_s=20).exit_code == -1


def test_much_both_ways(host: SshHost) -> None:
    content = os.urandom(1 << 20) * 16
    assert host.run(["cat"], timeout_s=60, stdin=content).stdout == content
    done = host.run(["sh", "-c", "head -c 8000000 /dev/zero >&2; echo out"], timeout_s=60)
    assert done.stdout == b"out\n"
    assert 0 < len(done.stderr) <= 1 << 20
    assert host.run(["true"], timeout_s=60, stdin=content).exit_code == 0, "it need not read"


def test_a_command_that_never_ends_is_ended(host: SshHost, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"gpu1 \(.*\): .sh -c .* did not end within 1 s; it was killed") as caught:
        host.run(["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; wait"], timeout_s=1)
    assert not isinstance(caught.value, HostLost)
    assert host.run(["echo", "fine"], timeout_s=20).stdout == b"fine\n"
    await_end(int((tmp_path / "pid").read_text()))


def test_many_threads_share_a_host(host: SshHost) -> None:
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda i=i: found.append(host.run(["echo", str(i)], timeout_s=30).stdout))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [f"{i}\n".encode() for i in range(8)]


def test_a_connection_that_ends_while_a_command_starts_is_an_error_of_the_host(
    host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise EOFError

    with monkeypatch.context() as patch:
        for name in ("exec_command", "close"):
            patch.setattr(paramiko.Channel, name, gone)
        with pytest.raises(HostError):
            host.run(["true"], timeout_s=10)


def test_lines_go_both_ways(host: SshHost) -> None:
    channel: Channel = host.start(["cat"])
    for line in ("one", "", "é" * 1_000_000):
        channel.send(line)
        assert channel.receive(30) == line
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    assert channel.exit_code is None
    channel.close()
    channel.close()
    assert channel.receive(5) is None
    with pytest.raises(HostError, match="is closed"):
        channel.send("x")


def test_a_process_that_ends(host: SshHost) -> None:
    channel = host.start(["sh", "-c", "echo last; printf unfinished; echo words >&2; exit 4"])
    assert [channel.receive(20) for _ in range(4)] == ["last", "unfinished", None, None]
    assert (channel.exit_code, channel.last_words) == (4, "words\n")
    with pytest.raises(HostError, match=r"has ended \(exit code 4\)") as caught:
        for _ in range(3):
            channel.send("x")
    assert not isinstance(caught.value, HostLost)
    killed = host.start(["sh", "-c", "kill -9 $$"])
    assert (killed.receive(20), killed.exit_code) == (None, None)


def test_a_flood_on_stderr_does_not_stop_it(host: SshHost) -> None:
    channel = host.start(["sh", "-c", "head -c 9000000 /dev/zero >&2; echo end >&2; echo out"])
    assert [channel.receive(60), channel.receive(60)] == ["out", None]
    assert channel.last_words.endswith("end\n")
    assert len(channel.last_words) <= 64 * 1024


def test_a_line_that_never_ends(host: SshHost) -> None:
    channel = host.start(["sh", "-c", "yes | tr -d '\\n' | head -c 20000000; cat"])
    with pytest.raises(HostError, match="sh said a line of more than 16 MB"):
        channel.receive(60)


def test_a_reader_that_is_not_there(host: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driple.orchestrator.hosts.remote_command.SEND_LIMIT_S", 0.3)
    channel = host.start(["sleep", "1000"])
    with pytest.raises(HostLost, match="sleep read nothing for 0.3 s"):
        for _ in range(100):
            channel.send("x" * 1_000_000)


def test_close_wakes_another_thread(host: SshHost) -> None:
    for close in (lambda channel: channel.close(), lambda channel: host.close()):
        host.open()
        channel = host.start(["cat"])
        heard: list[object] = []

        def listen(channel: Channel = channel, heard: list[object] = heard) -> None:
            try:
                heard.append(channel.receive(None))
            except HostLost:
                heard.append(None)

        thread = threading.Thread(target=listen)
        thread.start()
        close(channel)
        thread.join(20)
        assert heard == [None]


def test_a_shell_that_talks(connect: Connect, tmp_path: Path) -> None:
    with running_sshd(tmp_path / "noisy") as server:
        # SetEnv's HOME is the one whose .bashrc is read; a login shell other than bash reads its ENV or nothing.
        (server.home / ".bashrc").write_text("echo 'Welcome!'; printf 'no line end'; echo noise >&2\n")
        host = connect(server)
        host.open()
        assert host.run(["echo", "own"], timeout_s=20).stdout == b"own\n"
        channel = host.start(["cat"])
        channel.send("{}")
        assert channel.receive(20) == "{}"
        host.put(b"content", "~/file")
        host.get("~/file", tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_host(how: str, connect: Connect, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    host = connect()
    host.open()
    channel = host.start(["cat"])
    channel.send("x")
    assert channel.receive(20) == "x"
    errors: list[BaseException] = []

    def call(action: object, *arguments: object, **options: object) -> None:
        try:
            action(*arguments, **options)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    if how == "killed":
        threads = [
            threading.Thread(target=call, args=[channel.receive, None]),
            threading.Thread(target=call, args=[host.run, ["sleep", "600"]], kwargs={"timeout_s": 600}),
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.3)  # long enough that both wait; if not, the test is easier and still right
        sshd.signal_sessions()
        for thread in threads:
            thread.join(30)
        assert [type(error) for error in errors] == [HostLost, HostLost]
        with pytest.raises(HostLost):
            channel.send("x")
        with pytest.raises(HostLost):
            channel.receive(5)
        with pytest.raises(HostLost):
            host.put(b"", "~/x")
        host.open()
        assert host.run(["echo", "back"], timeout_s=20).stdout == b"back\n"
    else:
        monkeypatch.setattr("driple.orchestrator.hosts.ssh.LOST_AFTER_S", 0.5)
        sshd.signal_sessions(signal.SIGSTOP)
        try:
            with pytest.raises(HostLost, match="no command could be started within 0.5 s"):
                host.run(["true"], timeout_s=60)
        finally:
            sshd.signal_sessions()
