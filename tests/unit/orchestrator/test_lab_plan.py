"""What a lab is, before there is one: names, addresses, configuration, commands of tc and nft."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput
from driple.orchestrator.lab import sshd
from driple.orchestrator.lab.layout import (
    LINKS,
    MAX_HOSTS,
    SUPERVISOR_ADDRESS,
    LabFiles,
    LabPlan,
    data_address,
    hardware_address,
    management_address,
    port_name,
)
from driple.orchestrator.lab.shaping import Shape, burst_bytes, loss_lines, receiving_lines, sending_lines


def plan_of(**changes: Any) -> LabPlan:
    values: dict[str, Any] = {"hosts": 2, "user": "me", "uid": 1000, "gid": 1000, "shell": "/bin/sh", "path": "/bin"}
    return LabPlan(**(values | changes))


def test_every_host_has_addresses_and_names_that_nobody_else_has() -> None:
    numbers = range(1, MAX_HOSTS + 1)
    addresses = [data_address(n) for n in numbers] + [management_address(n) for n in numbers] + [SUPERVISOR_ADDRESS]
    assert len(set(addresses)) == 2 * MAX_HOSTS + 1
    assert all(0 < int(part) < 255 for address in addresses for part in address.split(".") if part != "0")
    assert len({hardware_address(n, link) for n in numbers for link in LINKS}) == 2 * MAX_HOSTS
    assert max(len(port_name(n, link)) for n in numbers for link in LINKS) <= 15  # longer ones the kernel refuses


def test_a_plan_survives_its_file() -> None:
    plan = plan_of(clock_offsets_s={"lab2": 5.0}, rate_mbit=None)
    assert LabPlan(**json.loads(json.dumps(asdict(plan)))) == plan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hosts": 0}, "hosts: expected 1 to 200, got 0"),
        ({"hosts": 201}, "hosts: expected 1 to 200, got 201"),
        ({"rate_mbit": 0.0}, "rate_mbit: expected above 0"),
        ({"rate_mbit": float("nan")}, "rate_mbit: expected above 0"),
        ({"disk_mb": 0}, "disk_mb: expected 1 to"),
        ({"clock_offsets_s": {"lab3": 1.0}}, "unknown lab host 'lab3'"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan_of(**changes)


def test_odd_folders_and_paths_reach_sshd_and_ssh_in_one_piece() -> None:
    files = LabFiles(Path("/tmp/100% odd"))
    text = sshd.config(plan_of(path='/a b:/c"d\\e'), files, "lab1")
    assert 'HostKey "/tmp/100% odd/lab1/host_key"' in text
    assert 'AuthorizedKeysFile "/tmp/100%% odd/key.pub"' in text
    assert 'SetEnv "HOME=/tmp/100% odd/home" "PATH=/a b:/c\\"d\\\\e" "TMPDIR=/tmp/100% odd/home/tmp"' in text
    assert 'IdentityFile "/tmp/100%% odd/key"' in sshd.client_config(plan_of(), files, "lab")


def test_a_burst_is_a_millisecond_but_never_less_than_tcp_needs() -> None:
    assert {rate: burst_bytes(rate) for rate in (0.1, 1.0, 10.0, 100.0, 1000.0, 5000.0)} == {
        0.1: 3028, 1.0: 3028, 10.0: 12500, 100.0: 65536, 1000.0: 125000, 5000.0: 625000
    }  # fmt: skip


def test_a_rate_is_set_in_both_directions_after_what_was_there_is_gone() -> None:
    tbf = "tbf rate 100000000bit burst 65536 limit 690536"
    assert sending_lines(Shape(100.0), netem=False) == [
        "qdisc replace dev eth0 root noqueue",
        f"qdisc replace dev eth0 root handle 1: {tbf}",
    ]
    assert receiving_lines(Shape(100.0), "data-lab7") == [
        "qdisc replace dev data-lab7 root noqueue",
        f"qdisc replace dev data-lab7 root handle 1: {tbf}",
    ]


def test_netem_delays_and_loses_and_tbf_stands_behind_it() -> None:
    assert sending_lines(Shape(1000.0, delay_ms=10.0, loss_pct=0.5), netem=True)[1:] == [
        "qdisc replace dev eth0 root handle 1: netem limit 1651 delay 10000us loss random 0.500000%",
        "qdisc replace dev eth0 parent 1:1 handle 10: tbf rate 1000000000bit burst 125000 limit 6375000",
    ]
    assert sending_lines(Shape(None, delay_ms=0.25), netem=True)[1:] == [
        "qdisc replace dev eth0 root handle 1: netem limit 1000 delay 250us"
    ]
    assert receiving_lines(Shape(None, delay_ms=10.0), "data-lab1") == ["qdisc replace dev data-lab1 root noqueue"]


def test_what_is_above_the_machine_is_not_set() -> None:
    assert sending_lines(Shape(40_000.0), netem=False) == ["qdisc replace dev eth0 root noqueue"]
    assert Shape(5000.0).limit_mbit == 5000.0


def test_loss_by_nftables_drops_what_leaves_a_host_and_replaces_the_former_rules() -> None:
    assert loss_lines(0.5, {1: "data-lab1"}) == [
        "add table netdev driple_lab_loss",
        "delete table netdev driple_lab_loss",
        "add table netdev driple_lab_loss",
        'add chain netdev driple_lab_loss from-lab1 { type filter hook ingress device "data-lab1" priority 0; }',
        "add rule netdev driple_lab_loss from-lab1 numgen random mod 100000 < 500 drop",
    ]
    assert len(loss_lines(0.0, {1: "data-lab1", 2: "data-lab2"})) == 2
    assert "< 1 drop" in loss_lines(0.00001, {1: "data-lab1"})[-1]
