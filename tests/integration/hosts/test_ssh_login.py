"""Who is let in, by whom, and what is said to the others."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import USER, Connect, Sshd, make_key, running_sshd

from driple.contracts.errors import HostError, HostLost, HostRefused
from driple.orchestrator.hosts.ssh import SshHost

pytestmark = pytest.mark.integration


def refusal(host: SshHost, kind: type[HostError] = HostRefused) -> str:
    """How it is refused: in one line that names it."""
    with pytest.raises(HostError) as caught:
        host.open()
    message = str(caught.value)
    assert type(caught.value) is kind, message
    assert "\n" not in message
    assert message.startswith("gpu1"), message
    return message


def said(host: SshHost) -> bytes:
    return host.run(["echo", "here"], timeout_s=20).stdout


def test_a_good_login_and_again_after_close(connect: Connect) -> None:
    host = connect()
    for _ in range(2):
        host.open()
        host.open()
        assert said(host) == b"here\n"
        host.close()
        host.close()
    with pytest.raises(HostLost, match="the connection is gone"):
        host.run(["true"], timeout_s=5)


def test_a_handed_in_socket_and_its_only_key(connect: Connect, sshd: Sshd, tmp_path: Path) -> None:
    host = connect(connect=sshd.connect, host_key=sshd.host_key)
    host.open()
    assert said(host) == b"here\n"
    wrong = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    assert "CHANGED" in refusal(connect(connect=sshd.connect, host_key=wrong))
    other_kind = make_key(tmp_path / "ecdsa", "ecdsa").with_suffix(".pub").read_text()
    assert "known keys are ecdsa" in refusal(connect(connect=sshd.connect, host_key=other_kind))


def test_a_wrong_key(connect: Connect, sshd: Sshd, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key = make_key(tmp_path / "stranger")
    message = refusal(connect(spec={"identity_file": str(key)}))
    assert f"({USER}@127.0.0.1:{sshd.port}): login refused; tried {key}" in message
    assert "authorized_keys" in message
    assert capfd.readouterr() == ("", "")


def test_no_key_at_all(connect: Connect) -> None:
    assert "there was no key to try" in refusal(connect(spec={"identity_file": "/no/such/key"}))


def test_a_key_with_a_passphrase_wants_the_agent(connect: Connect, tmp_path: Path) -> None:
    key = make_key(tmp_path / "locked", passphrase="secret words")
    message = refusal(connect(spec={"identity_file": str(key)}))
    assert f"ssh-add {key}" in message
    assert "secret" not in message


def test_too_many_wrong_keys(connect: Connect, tmp_path: Path) -> None:
    keys = [make_key(tmp_path / f"key{i}") for i in range(8)]
    config = tmp_path / "config"
    config.write_text("".join(f"IdentityFile {key}\n" for key in keys))
    assert "IdentitiesOnly" in refusal(connect(spec={"identity_file": None}, config_file=config))


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_wrong_host_key(accept_new: bool, connect: Connect, sshd: Sshd, tmp_path: Path) -> None:
    public = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{sshd.port} {public}")
    message = refusal(connect(known_hosts=[known], accept_new=accept_new))
    assert re.search(r"CHANGED to ssh-ed25519 SHA256:\S+; .*known:1 has another", message)


def test_an_unknown_host_key(
    connect: Connect, sshd: Sshd, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known"
    print_of = subprocess.run(["ssh-keygen", "-l", "-f", sshd.folder / "host.pub"], capture_output=True, text=True)
    fingerprint = print_of.stdout.split()[1]
    message = refusal(connect(known_hosts=[known]))
    for part in (fingerprint, str(known), "--accept-new-host-keys", f"ssh -p {sshd.port} "):
        assert part in message
    assert not known.exists()
    with caplog.at_level(logging.WARNING):
        connect(known_hosts=[known], accept_new=True).open()
    assert fingerprint in caplog.text
    connect(known_hosts=[known]).open()
    found = subprocess.run(["ssh-keygen", "-F", f"[127.0.0.1]:{sshd.port}", "-f", known], capture_output=True)
    assert found.returncode == 0, "OpenSSH reads what we wrote"
    assert capfd.readouterr().err == ""


def test_the_configuration_leads_there(connect: Connect, sshd: Sshd, tmp_path: Path) -> None:
    config, more = tmp_path / "config", tmp_path / "more"
    more.write_text(f"Host big-*\n  Port {sshd.port}\n  User {USER}\n  IdentityFile {sshd.key}\n")
    config.write_text(
        f"Include {more}\nHost big-one\n  HashKnownHosts no\n  HostName 127.0.0.1\n  HostKeyAlias cluster\n"
        f"  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {tmp_path}/known2\n"
    )
    left_out = {"address": "big-one", "user": None, "port": None, "identity_file": None}
    host = connect(spec=left_out, config_file=config, known_hosts=None)
    host.open()
    assert said(host) == b"here\n"
    assert (tmp_path / "known2").read_text().startswith("cluster ssh-ed25519 ")


def test_through_a_jump_host_and_a_chain_of_them(connect: Connect, sshd: Sshd, tmp_path: Path, own_home: Path) -> None:
    with running_sshd(tmp_path / "jump") as jump, running_sshd(tmp_path / "gate", ["AllowTcpForwarding no"]) as gate:
        (own_home / ".ssh").mkdir()
        known = own_home / ".ssh" / "known_hosts"
        known.write_text("".join(each.known(tmp_path / "one").read_text() for each in (sshd, jump, gate)))
        config = own_home / ".ssh" / "config"
        hosts = {"inner": (sshd, "jump"), "jump": (jump, "none"), "far": (sshd, "jump,inner"), "shut": (sshd, "gate")}
        hosts["gate"] = (gate, "none")
        config.write_text(
            "".join(
                f"Host {name}\n HostName 127.0.0.1\n Port {server.port}\n User {USER}\n"
                f" IdentityFile {server.key}\n ProxyJump {through}\n"
                for name, (server, through) in hosts.items()
            )
        )
        left_out = {"user": None, "port": None, "identity_file": None}
        default = {"config_file": None, "known_hosts": None}
        for name in ("inner", "far"):
            host = connect(spec={**left_out, "address": name}, **default)
            host.open()
            assert said(host) == b"here\n"
            assert jump.sessions()
            host.close()
        assert "forbids forwarding" in refusal(connect(spec={**left_out, "address": "shut"}, **default))
        many = [connect(spec={**left_out, "address": "inner", "name": f"h{i}"}, **default) for i in range(12)]
        threads = [threading.Thread(target=each.open) for each in many]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert {said(each) for each in many} == {b"here\n"}
        # A jump host that dies takes the connection with it.
        jump.signal_sessions()
        with pytest.raises(HostLost):
            many[0].run(["sleep", "20"], timeout_s=30)


def test_through_a_command(connect: Connect, sshd: Sshd, tmp_path: Path) -> None:
    script = tmp_path / "proxy.py"
    script.write_text(
        "import os, select, socket, sys\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "while True:\n"
        "    for fd in select.select([0, s.fileno()], [], [])[0]:\n"
        "        data = os.read(fd, 65536)\n"
        "        if not data: sys.exit()\n"
        "        s.sendall(data) if fd == 0 else os.write(1, data)\n"
    )
    config = tmp_path / "config"
    config.write_text(f"Host *\n ProxyCommand {os.path.realpath('/proc/self/exe')} {script} %h %p\n")
    host = connect(config_file=config)
    host.open()
    assert said(host) == b"here\n"
    config.write_text("Host *\n ProxyCommand false\n")
    assert "no SSH handshake" in refusal(connect(config_file=config), HostLost)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if shutil.which("ssh-agent") is None:
        pytest.skip("needs ssh-agent")
    where = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", where], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(where))
    try:
        for _ in range(500):
            if where.exists():
                break
            threading.Event().wait(0.02)
        yield where
    finally:
        process.kill()
        process.wait()


def test_the_agent_has_the_key(connect: Connect, sshd: Sshd, tmp_path: Path, agent: Path) -> None:
    strangers = [make_key(tmp_path / f"stranger{i}") for i in range(3)]
    subprocess.run(["ssh-add", "-q", *strangers, sshd.key], check=True, stderr=subprocess.DEVNULL)
    connect(spec={"identity_file": None}).open()
    # Seven others before it would be too many; its public half in a file picks it out of them.
    more = [make_key(tmp_path / f"more{i}", "ecdsa") for i in range(5)]
    subprocess.run(["ssh-add", "-q", *more], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["ssh-add", "-q", "-d", sshd.key], check=True, stderr=subprocess.DEVNULL)
    assert "tried agent's test" in refusal(connect(spec={"identity_file": None}))
    subprocess.run(["ssh-add", "-q", sshd.key], check=True, stderr=subprocess.DEVNULL)
    public = shutil.copy(sshd.folder / "login.pub", tmp_path / "only.pub")
    connect(spec={"identity_file": str(public)}).open()


def test_another_agent_by_the_configuration(
    connect: Connect, sshd: Sshd, tmp_path: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["ssh-add", "-q", sshd.key], check=True, stderr=subprocess.DEVNULL)
    monkeypatch.delenv("SSH_AUTH_SOCK")
    config = tmp_path / "config"
    config.write_text(f"Host *\n IdentityAgent {agent}\n")
    connect(spec={"identity_file": None}, config_file=config).open()
    config.write_text("Host *\n IdentityAgent none\n")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    assert "no key to try" in refusal(connect(spec={"identity_file": None}, config_file=config))


def test_a_dead_agent_is_no_agent(connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    assert "no key to try" in refusal(connect(spec={"identity_file": None}))


def test_nobody_there(connect: Connect) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert "Connection refused" in refusal(connect(spec={"port": port}), HostLost)
    assert "could not be resolved" in refusal(connect(spec={"address": "no-such-host.invalid"}), HostLost)


@pytest.mark.parametrize("talk", [b"", b"hello, I am no SSH server\r\n" * 50, None], ids=["silent", "other", "closes"])
def test_something_else_there(connect: Connect, talk: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                if talk is not None:
                    peer.sendall(talk)
                    peer.settimeout(30)
                    while peer.recv(1000):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        host = connect(spec={"port": server.getsockname()[1]}, connect_timeout_s=0.5)
        assert "no SSH handshake" in refusal(host, HostLost)
        thread.join(30)


def test_a_server_that_takes_passwords_only(connect: Connect, tmp_path: Path) -> None:
    with running_sshd(tmp_path / "other", ["PubkeyAuthentication no", "PasswordAuthentication yes"]) as server:
        assert "takes no keys, only password" in refusal(connect(server))
