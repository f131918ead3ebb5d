"""Hosts: who they are, what they see, how they die and come back."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from driple.contracts.errors import BadInput, HostLost, RunFailed
from driple.contracts.run_spec import NetworkCondition
from driple.orchestrator.lab.lab_client import Lab
from driple.orchestrator.lab.layout import SUPERVISOR_ADDRESS, hardware_address

Remote = Callable[..., str]


def test_a_host_has_its_own_name_address_processes_home_and_interfaces(lab: Lab, remote: Remote) -> None:
    assert lab.names == ("lab1", "lab2", "lab3")
    assert remote(lab, "lab2", "hostname").split() == ["lab2"]
    assert sorted(remote(lab, "lab2", "ls /sys/class/net").split()) == ["eth0", "lo", "mgmt0"]
    assert f"inet {lab.data_address('lab2')}/16" in remote(lab, "lab2", "ip address show eth0")
    processes = remote(lab, "lab2", "cat /proc/[0-9]*/comm").split()
    assert processes.count("sshd") >= 2 and len(processes) < 10
    home = remote(lab, "lab2", "touch here; pwd; echo $HOME; df --output=fstype . | tail -1").split()
    assert home == [str(lab.folder / "home")] * 2 + ["tmpfs"]
    assert not (lab.folder / "home" / "here").exists()
    assert "here" not in remote(lab, "lab3", "ls").split()


def test_the_environment_of_a_login_is_the_callers_path_and_little_else(
    monkeypatch: pytest.MonkeyPatch, remote: Remote
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monkeypatch.setenv("PATH", '/usr/bin:/bin:/usr/sbin:/with "two words"/bin')
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    with Lab.start(hosts=1) as lab:
        lines = remote(lab, "lab1", "env").splitlines()
    assert 'PATH=/usr/bin:/bin:/usr/sbin:/with "two words"/bin' in lines
    assert not [line for line in lines if line.startswith(("LD_", "SECRET_"))]


def test_processes_of_a_host_take_signals_and_accounts_as_usual(lab: Lab, remote: Remote) -> None:
    assert remote(lab, "lab1", "grep SigIgn /proc/self/status").split()[1] == "0" * 16
    assert remote(lab, "lab1", "stat -c %a /etc/passwd /etc/hosts; getent hosts lab2").split() == (
        ["644", "644", lab.data_address("lab2"), "lab2"]
    )


def test_the_host_key_is_real(lab: Lab, login: Callable[..., paramiko.SSHClient]) -> None:
    assert len({lab.host_key(name) for name in lab.names}) == 3
    login(lab, "lab1").close()
    with pytest.raises(paramiko.BadHostKeyException):
        login(lab, "lab1", host_key=lab.host_key("lab2"))


def test_another_key_is_not_let_in(lab: Lab, tmp_path: Path) -> None:
    other = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True, timeout=20)
    line = lab.connect("lab1")
    assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    with line, paramiko.Transport(line) as transport:
        transport.start_client(timeout=20)
        assert transport.get_remote_server_key().get_base64() == lab.host_key("lab1").split()[1]
        with pytest.raises(paramiko.AuthenticationException):
            transport.auth_publickey(lab.user, paramiko.Ed25519Key.from_private_key_file(str(other)))


def test_an_unknown_host_is_bad_input_with_the_nearest(lab: Lab) -> None:
    for ask in (lab.host_key, lab.data_address, lab.connect, lab.kill_host, lab.revive_host):
        with pytest.raises(BadInput, match="unknown lab host 'lap2'; did you mean 'lab2'"):
            ask("lap2")
    with pytest.raises(BadInput, match="lab2"):
        lab.set_link("lap2", up=True)
    with pytest.raises(BadInput, match="unknown link"):
        lab.set_link("lab2", up=True, which="dta")  # type: ignore[arg-type]


def test_a_killed_host_is_silent_until_it_is_revived(lab: Lab, remote: Remote) -> None:
    remote(lab, "lab3", "touch before; setsid sleep 300 >/dev/null 2>&1 &")
    key = lab.host_key("lab3")
    lab.kill_host("lab3")
    lab.kill_host("lab3")
    assert not lab.describe()["hosts"]["lab3"]["up"]
    with pytest.raises(HostLost, match="lab3"):
        lab.connect("lab3", timeout_s=1)
    assert remote(lab, "lab1", "hostname").split() == ["lab1"]
    lab.revive_host("lab3")
    lab.revive_host("lab3")
    assert lab.describe()["hosts"]["lab3"]["up"] and lab.host_key("lab3") == key


def test_a_revived_host_is_empty_and_reachable_by_the_others(lab: Lab, remote: Remote) -> None:
    lab.kill_host("lab3", silent=False)
    lab.revive_host("lab3")
    assert remote(lab, "lab3", "ls; cat /proc/[0-9]*/comm | grep -c sleep || true").split() == ["tmp", "0"]
    assert "tbf" in remote(lab, "lab3", "tc qdisc show dev eth0")
    reach = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{lab.data_address('lab3')}/9' 2>&1; true"
    assert "refused" in remote(lab, "lab1", reach)


def test_the_keeper_stays_where_it_is_when_hosts_go(lab: Lab, remote: Remote) -> None:
    ask = f"ip neigh show {SUPERVISOR_ADDRESS} dev mgmt0"
    for name in ("lab2", "lab3"):
        lab.kill_host(name)
        assert hardware_address(0, "mgmt") in remote(lab, "lab1", ask).split()
    for name in ("lab2", "lab3"):
        lab.revive_host(name)
        assert hardware_address(0, "mgmt") in remote(lab, "lab1", ask).split()


def test_a_full_disk_is_the_hosts_own(remote: Remote) -> None:
    with Lab.start(hosts=2, disk_mb=3) as lab:
        said = remote(lab, "lab1", "dd if=/dev/zero of=big bs=1M count=10 2>&1; true")
        assert "No space left on device" in said
        remote(lab, "lab2", "dd if=/dev/zero of=small bs=1M count=2")
        remote(lab, "lab1", "rm big; dd if=/dev/zero of=small bs=1M count=2")


def test_a_clock_can_be_off(remote: Remote) -> None:
    python = "/usr/bin/env python3 -c 'import time; print(time.monotonic())'"
    with Lab.start(hosts=2, clock_offsets_s={"lab2": 5.25}) as lab:
        for name, offset_s in (("lab1", 0.0), ("lab2", 5.25)):
            early = time.monotonic()
            there = float(remote(lab, name, python))
            assert early <= there - offset_s <= time.monotonic()


def test_a_clock_that_no_kernel_allows_is_an_error_in_words() -> None:
    with pytest.raises(RunFailed, match="lab1: this kernel cannot shift a clock by -1e\\+09 s"):
        Lab.start(hosts=1, clock_offsets_s={"lab1": -1e9})
    with pytest.raises(BadInput, match="unknown lab host 'lab7'"):
        Lab.start(hosts=1, clock_offsets_s={"lab7": 1})


def test_two_labs_at_the_same_time_do_not_meet(lab: Lab, remote: Remote) -> None:
    with Lab.start(hosts=1) as other:
        assert other.data_address("lab1") == lab.data_address("lab1")
        assert other.host_key("lab1") != lab.host_key("lab1")
        remote(other, "lab1", "touch other")
        assert "other" not in remote(lab, "lab1", "ls").split()
    assert remote(lab, "lab1", "hostname").split() == ["lab1"]


def test_many_threads_may_ask_at_once(lab: Lab) -> None:
    def ask(number: int) -> str:
        if number % 8 == 0:
            return str(lab.shape(NetworkCondition(), 1000)["rate"])
        with lab.connect(lab.names[number % 3]) as line:
            return line.recv(8).decode()

    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(ask, range(64)))
    assert said == ["tbf" if number % 8 == 0 else "SSH-2.0-" for number in range(64)]


def test_closing_twice_is_fine_and_a_closed_lab_says_so() -> None:
    lab = Lab.start(hosts=1)
    lab.close()
    lab.close()
    with pytest.raises(RunFailed, match="is gone"):
        lab.connect("lab1")
