"""The inventory first, then ~/.ssh/config."""

from __future__ import annotations

import getpass
import shutil
from pathlib import Path

import pytest

from driple.contracts.errors import HostRefused
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts import route as routes
from driple.orchestrator.hosts.route import Options, find_route

GPU1 = HostSpec(name="gpu1", address="gpu1")


@pytest.fixture(autouse=True)
def no_system_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(routes, "_SYSTEM_CONFIG", tmp_path / "none")
    if shutil.which("ssh") is None:
        pytest.skip("needs openssh-client")


def options(tmp_path: Path, config: str, **changes: object) -> Options:
    file = tmp_path / "a [folder]" / "config"
    file.parent.mkdir(exist_ok=True)
    file.write_text(config)
    return Options(config_file=file, **changes)  # type: ignore[arg-type]


def test_without_configuration(tmp_path: Path, own_home: Path) -> None:
    route = find_route(GPU1, Options(config_file=tmp_path / "missing"))
    assert str(route) == f"gpu1 ({getpass.getuser()}@gpu1:22)"
    assert route.known_hosts[0] == own_home / ".ssh" / "known_hosts"
    assert Path("/etc/ssh/ssh_known_hosts") in route.known_hosts
    assert own_home / ".ssh" / "id_ed25519" in route.identity_files
    assert (route.key_name, route.accept_new, route.jump, route.proxy_command) == ("gpu1", False, None, None)
    assert route.timeout_s == 10


def test_the_configuration_is_followed(tmp_path: Path, own_home: Path) -> None:
    (tmp_path / "more").write_text("Host gpu*\n  User bob\n  Port 2200\n  HashKnownHosts yes\n")
    config = f"""
Include {tmp_path}/more
Host other
  User eve
Host gpu1
  HostName %h.Example.org
  IdentityFile ~/keys/%r@%h
  IdentityFile %d/second
  IdentitiesOnly yes
  UserKnownHostsFile ~/known_%n /elsewhere
  ConnectTimeout 3
  StrictHostKeyChecking accept-new
  ProxyCommand nc --%% %h %p %r
"""
    route = find_route(GPU1, options(tmp_path, config))
    assert str(route).lower() == "gpu1 (bob@gpu1.example.org:2200)"
    assert [str(path).lower() for path in route.identity_files] == [
        f"{own_home}/keys/bob@gpu1.example.org".lower(),
        f"{own_home}/second".lower(),
    ]
    assert route.identities_only
    assert route.accept_new
    assert route.hash_names
    assert route.known_hosts[1] == Path("/elsewhere")
    assert route.known_hosts[0].name == "known_gpu1"
    assert route.key_name == "[gpu1.example.org]:2200"
    assert route.timeout_s == 3
    assert route.proxy_command is not None
    assert route.proxy_command.lower() == "nc --% gpu1.example.org 2200 bob"


def test_the_inventory_and_the_caller_go_first(tmp_path: Path) -> None:
    config = """
Host gpu1
  User eve
  Port 1
  IdentityFile /no
  UserKnownHostsFile /no
  ConnectTimeout 3
Match user bob
  HostKeyAlias Matched
"""
    spec = HostSpec(name="big", address="gpu1", user="bob", port=2200, identity_file="~/mine")
    chosen = options(tmp_path, config, known_hosts=[Path("/mine")], accept_new=True, connect_timeout_s=1.5)
    route = find_route(spec, chosen)
    assert str(route) == "big (bob@gpu1:2200)"
    assert [path.name for path in route.identity_files] == ["mine"]
    assert route.identities_only
    assert (route.known_hosts, route.accept_new, route.timeout_s) == ([Path("/mine")], True, 1.5)
    assert route.key_name == "matched"


def test_jumps_are_chained(tmp_path: Path) -> None:
    config = """
Host gpu1
  ProxyJump first,bob@second:2200,ssh://third
Host first
  ProxyJump zeroth
Host third
  HostName 192.0.2.3
  ProxyJump ignored
"""
    route = find_route(GPU1, options(tmp_path, config))
    seen = []
    while route.jump is not None:
        route = route.jump()
        seen.append((route.name, route.hostname, route.port, route.depth))
    assert seen == [
        ("gpu1 via third", "192.0.2.3", 22, 1),
        ("gpu1 via third via second", "second", 2200, 2),
        ("gpu1 via third via second via first", "first", 22, 3),
        ("gpu1 via third via second via first via zeroth", "zeroth", 22, 4),
    ]


def test_a_jump_can_be_switched_off(tmp_path: Path) -> None:
    route = find_route(GPU1, options(tmp_path, "Host gpu1\n  ProxyJump none\nHost *\n  ProxyJump gate\n"))
    assert route.jump is None


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostRefused, match=r"gpu1: .*config cannot be read: .*line 2.*nonsense"):
        find_route(GPU1, options(tmp_path, "Host gpu1\n  Nonsense yes\n"))


def test_no_ssh_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_route(GPU1, Options(config_file=tmp_path / "missing")).hostname == "gpu1"
    with pytest.raises(HostRefused, match="install openssh-client"):
        find_route(GPU1, options(tmp_path, "Host gpu1\n"))
