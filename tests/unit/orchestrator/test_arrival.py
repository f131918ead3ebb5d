"""The agent's file comes to a host once, whole, and runs there: with a small archive in place of the real one."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from driple.orchestrator.hosts.agent_file import BOOTSTRAP, AgentFile
from driple.orchestrator.hosts.bootstrap import NO_FOLDER
from driple.orchestrator.hosts.local import LocalChannel, LocalHost

MAIN = "import sys; print('runs', *sys.argv[1:], flush=True); print('heard', sys.stdin.readline(), flush=True)"
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def agent() -> AgentFile:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("__main__.py", MAIN)
        archive.writestr("ballast", os.urandom(300_000))  # more than a pipe or a socket holds
    return AgentFile(made.getvalue(), hashlib.sha256(made.getvalue()).hexdigest())


@pytest.fixture
def host() -> Iterator[LocalHost]:
    found = LocalHost()
    yield found
    found.close()


def arrive(host: LocalHost, agent: AgentFile, folder: Path | str) -> LocalChannel:
    channel = host.start([*agent.command(sys.executable, str(folder)), "one", "two words"])
    channel.write(BOOTSTRAP)
    return channel


def runs(channel: LocalChannel) -> bool:
    assert channel.receive(LIMIT_S) == "runs one two words"
    channel.send("a line")  # what comes after the file is the agent's
    return channel.receive(LIMIT_S) == "heard a line"


def test_it_is_asked_for_once(host: LocalHost, agent: AgentFile, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there yet"
    channel = arrive(host, agent, folder)
    assert channel.receive(LIMIT_S) == '{"bring": "agent"}'
    channel.write(agent.content)
    assert runs(channel)
    assert [path.name for path in folder.iterdir()] == [agent.file_name]
    assert (folder / agent.file_name).read_bytes() == agent.content
    assert runs(arrive(host, agent, f"{folder}/"))


def test_a_damaged_one_is_replaced(host: LocalHost, agent: AgentFile, tmp_path: Path) -> None:
    (tmp_path / agent.file_name).write_bytes(agent.content[:-1] + b"x")
    channel = arrive(host, agent, tmp_path)
    assert channel.receive(LIMIT_S) == '{"bring": "agent"}'
    channel.write(agent.content)
    assert runs(channel)
    assert (tmp_path / agent.file_name).read_bytes() == agent.content


def test_half_of_it_is_nothing(host: LocalHost, agent: AgentFile, tmp_path: Path) -> None:
    channel = arrive(host, agent, tmp_path)
    assert channel.receive(LIMIT_S) == '{"bring": "agent"}'
    channel.write(agent.content[:-1])
    host.close()
    assert list(tmp_path.iterdir()) == []


def test_home_is_the_hosts_own(
    host: LocalHost, agent: AgentFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / agent.file_name).write_bytes(agent.content)
    assert runs(arrive(host, agent, "~"))


def test_a_folder_that_cannot_be_is_told(host: LocalHost, agent: AgentFile, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    channel = arrive(host, agent, tmp_path / "file" / "folder")
    assert channel.receive(LIMIT_S) is None
    assert (channel.exit_code, "Not a directory" in channel.last_words) == (NO_FOLDER, True)
