"""One sshd for most tests, and hosts that are closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sshd import Connect, Sshd, running_sshd

from driple.orchestrator.hosts.ssh import SshHost


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd") / "server") as server:
        yield server


@pytest.fixture
def connect(sshd: Sshd, tmp_path: Path) -> Iterator[Connect]:
    """Makes a host, which is not open yet: in known_hosts, with no configuration, unless told otherwise."""
    made: list[SshHost] = []

    def make(server: Sshd = sshd, *, spec: dict[str, Any] | None = None, **options: Any) -> SshHost:
        if "connect" not in options:
            options.setdefault("config_file", tmp_path / "no-config")
            if "known_hosts" not in options:
                options["known_hosts"] = [server.known(tmp_path / f"known-{server.port}")]
        made.append(SshHost(server.spec(**(spec or {})), **options))
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.fixture
def host(connect: Connect) -> SshHost:
    made = connect()
    made.open()
    return made
