"""What known_hosts files say, and what is made of it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import paramiko
import pytest

from driple.contracts.errors import HostRefused
from driple.orchestrator.hosts.known_hosts import HostKeys
from driple.orchestrator.hosts.route import Route

KEY = paramiko.ECDSAKey.generate()
OTHER = paramiko.ECDSAKey.generate()
LINE = f"{KEY.get_name()} {KEY.get_base64()}"
OTHER_LINE = f"{OTHER.get_name()} {OTHER.get_base64()}"
OFFERED = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"]


def route(*files: Path, name: str = "[gpu1.example.org]:2200", accept_new: bool = False, hashed: bool = False) -> Route:
    return Route(
        name="gpu1",
        alias="gpu1",
        hostname="gpu1.example.org",
        user="bob",
        port=2200,
        known_hosts=files,
        key_name=name,
        accept_new=accept_new,
        hash_names=hashed,
    )


@pytest.mark.parametrize(
    "names",
    [
        "[gpu1.example.org]:2200",
        "other,[GPU1.example.org]:2200",
        "[*.example.org]:2200",
        "[gpu?.example.org]:*",
        pytest.param(paramiko.HostKeys.hash_host("[gpu1.example.org]:2200"), id="hashed"),
    ],
)
def test_a_known_key_is_taken(names: str, tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"# comment\n\nshort line\n{names} {LINE} comment\n")
    HostKeys(route(tmp_path / "missing", file)).check(KEY)


@pytest.mark.parametrize(
    "names",
    [
        "gpu1.example.org",
        "[gpu1.example.org]:22",
        "[*.example.org]:2200,![gpu1.example.org]:2200",
        "@cert-authority [gpu1.example.org]:2200",
        pytest.param(paramiko.HostKeys.hash_host("gpu2.example.org"), id="hashed"),
        "|1|broken",
    ],
)
def test_an_unknown_key_is_refused_with_its_fingerprint_and_the_remedy(names: str, tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"{names} {LINE}\n")
    with pytest.raises(HostRefused) as caught:
        HostKeys(route(file)).check(KEY)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "gpu1 (bob@gpu1.example.org:2200)",
        KEY.fingerprint,
        str(file),
        "(ssh -p 2200 bob@gpu1)",
        "--accept-new",
    ):
        assert part in message
    assert file.read_text() == f"{names} {LINE}\n"


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_changed_key_is_never_accepted(accept_new: bool, tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"\n[gpu1.example.org]:2200 {OTHER_LINE}\n")
    with pytest.raises(HostRefused, match=r"CHANGED to ecdsa.*SHA256:.*known:2 has another.*ssh-keygen -R"):
        HostKeys(route(file, accept_new=accept_new)).check(KEY)
    assert KEY.get_base64() not in file.read_text()


def test_a_key_of_another_kind_is_a_changed_one(tmp_path: Path) -> None:
    """The kinds that are known are asked for first, so a host that shows another has not got the old one."""
    file = tmp_path / "known"
    file.write_text("[gpu1.example.org]:2200 ssh-rsa AAAA\n")
    keys = HostKeys(route(file, accept_new=True))
    assert keys.algorithms(OFFERED) == ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256"]
    with pytest.raises(HostRefused, match="CHANGED"):
        keys.check(KEY)


def test_a_revoked_key_is_refused_although_it_is_known(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"[gpu1.example.org]:2200 {LINE}\n@revoked * {LINE}\n")
    with pytest.raises(HostRefused, match="revoked in .*known:2"):
        HostKeys(route(file, accept_new=True)).check(KEY)


@pytest.mark.parametrize("hashed", [False, True])
def test_a_new_key_is_added_where_that_is_wanted(
    hashed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ssh" / "known"
    with caplog.at_level(logging.WARNING):
        HostKeys(route(file, accept_new=True, hashed=hashed)).check(KEY)
    assert KEY.fingerprint in caplog.text
    assert "gpu1 (bob@" in caplog.text
    assert ("gpu1.example.org" in file.read_text()) is not hashed
    assert file.stat().st_mode & 0o777 == 0o600
    HostKeys(route(file)).check(KEY)
    with pytest.raises(HostRefused, match="CHANGED"):
        HostKeys(route(file, accept_new=True)).check(OTHER)


def test_many_threads_add_at_once(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text("first line without its end")
    many = [HostKeys(route(file, name=f"host{i // 2}", accept_new=True)) for i in range(40)]
    threads = [threading.Thread(target=keys.check, args=[KEY]) for keys in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, *lines = file.read_text().splitlines()
    assert first == "first line without its end"
    assert sorted(lines) == sorted(f"host{i} {LINE}" for i in range(20))


def test_the_only_key_counts_whatever_files_say(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"[gpu1.example.org]:2200 {LINE}\n")
    keys = HostKeys(route(file, accept_new=True), only=f"{OTHER_LINE} lab\n")
    keys.check(OTHER)
    assert keys.algorithms(OFFERED) == ["ecdsa-sha2-nistp256"]
    with pytest.raises(HostRefused, match="CHANGED"):
        keys.check(KEY)
