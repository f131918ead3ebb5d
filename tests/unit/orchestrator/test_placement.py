from __future__ import annotations

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.orchestrator.config.inventory import HostSpec, Inventory, Link
from driple.orchestrator.config.placement import EXPLICIT, PACKED, SPREAD, Policy, place, together

LAB = Inventory(kind="lab")


def ssh(*hosts: HostSpec) -> Inventory:
    return Inventory(kind="ssh", hosts=hosts)


def gpu_host(name: str, count: int, kind: str = "v100", networks: tuple[str, ...] = ()) -> HostSpec:
    gpus = {kind: tuple(range(count))} if count else {}
    return HostSpec(name=name, address=name, gpus=gpus, networks={network: Link() for network in networks})


def places(setting: str, policy: Policy, inventory: Inventory) -> list[str]:
    placed = place(Setting.parse(setting), policy, inventory)
    assert [item.task for item in placed] == list(Setting.parse(setting).tasks)
    return [f"{item.host}" + ("" if item.gpu is None else f"/{item.gpu}") for item in placed]


def test_in_the_lab_every_task_has_its_own_host() -> None:
    assert places("cpu-p1w2-1g", Policy(), LAB) == ["lab1", "lab2", "lab3"]
    assert places("cpu-p1w2-1g", Policy(kind=SPREAD, machines=2), LAB) == ["lab1", "lab2", "lab1"]
    assert places("cpu-p1w2-pcie", Policy(), LAB) == ["lab1"] * 3


def test_packed_takes_the_first_host_with_gpus_enough() -> None:
    hosts = ssh(gpu_host("a", 1), gpu_host("b", 4, "2080ti"), gpu_host("c", 2))
    assert places("v100-p2w2-pcie", Policy(kind=PACKED), hosts) == ["c", "c", "c/0", "c/1"]
    assert places("cpu-p1w1-pcie", Policy(), hosts) == ["a", "a"]


def test_spread_goes_round_and_passes_over_full_hosts() -> None:
    hosts = ssh(gpu_host("a", 1), gpu_host("b", 3), gpu_host("c", 2))
    assert places("v100-p2w4-1g", Policy(), hosts) == ["a", "b", "c/0", "a/0", "b/0", "c/1"]
    assert places("v100-p1w5-1g", Policy(), hosts) == ["a", "b/0", "c/0", "a/0", "b/1", "c/1"]
    assert places("v100-p1w5-1g", Policy(kind=SPREAD, machines=2), hosts) == ["b", "c/0", "b/0", "c/1", "b/1", "b/2"]


def test_spread_uses_hosts_on_the_network_only() -> None:
    hosts = ssh(gpu_host("a", 2, networks=("1g",)), gpu_host("b", 2, networks=("40g", "1g")), gpu_host("c", 2))
    assert places("v100-p1w1-40g", Policy(), hosts) == ["b", "c/0"]


def test_explicit() -> None:
    policy = Policy(kind=EXPLICIT, explicit={"b": ("worker:1", "ps:0"), "a": ("worker:0",)})
    assert places("v100-p1w2-1g", policy, ssh(gpu_host("a", 1), gpu_host("b", 1))) == ["b", "a/0", "b/0"]


def test_together_names_no_hosts() -> None:
    hosts = ssh(gpu_host("a", 2), gpu_host("b", 2))
    elsewhere = ssh(gpu_host("x", 2), gpu_host("y", 2))
    placed = [place(Setting.parse("v100-p2w2-1g"), Policy(), inventory) for inventory in (hosts, elsewhere)]
    assert together(placed[0]) == together(placed[1]) == (("ps:0", "worker:0"), ("ps:1", "worker:1"))


def explicit(**tasks: str) -> Policy:
    return Policy(kind=EXPLICIT, explicit={host: tuple(names.split()) for host, names in tasks.items()})


def spread(machines: int | None = None) -> Policy:
    return Policy(kind=SPREAD, machines=machines)


ONE, NONE, TWO_WITHOUT = ssh(gpu_host("a", 1)), ssh(), ssh(gpu_host("a", 0), gpu_host("b", 0))
TWO = ssh(gpu_host("a", 1), gpu_host("b", 1))
MIXED = ssh(gpu_host("a", 1, networks=("1g",)), gpu_host("b", 0, networks=("40g",)))
LOCAL = Inventory(kind="local")


@pytest.mark.parametrize(
    ("setting", "policy", "inventory", "message"),
    [
        ("v100-p1w2-pcie", Policy(), ONE, r"needs one host with 2 v100 GPUs; the inventory has a \(1 v100 GPU\)"),
        ("v100-p1w2-1g", Policy(), ONE, "needs 2 hosts with a v100 on a 1g network; the inventory has a"),
        ("v100-p1w3-1g", Policy(), TWO, "needs 3 v100 GPUs on 2 hosts"),
        ("v100-p1w1-1g", Policy(), TWO_WITHOUT, r"a \(0 v100 GPUs\), b \(0 v100 GPUs\)"),
        ("v100-p1w1-40g", Policy(), MIXED, r"a \(1 v100 GPU, no 40g\), b \(0 v100 GPUs\)"),
        ("cpu-p2w2-1g", spread(3), TWO_WITHOUT, "needs 3 hosts on a 1g network"),
        ("cpu-p1w1-1g", spread(3), LAB, "has 2 tasks, and cannot be spread over 3 hosts"),
        ("cpu-p1w1-pcie", spread(), LAB, "is one machine, and placement is spread"),
        ("cpu-p1w1-1g", Policy(kind=PACKED), LAB, "spans machines, and placement is packed"),
        ("cpu-p1w1-1g", Policy(), LOCAL, "spans machines, and hosts is local"),
        ("cpu-p1w1-1g", Policy(), NONE, "there are none"),
        (
            "cpu-p1w1-1g",
            explicit(lba1="ps:0"),
            LAB,
            r"unknown host 'lba1'; did you mean 'lab1'\? \(known: lab1, lab2\)",
        ),
        ("cpu-p1w1-1g", explicit(lab1="ps:1"), LAB, "unknown task of cpu-p1w1-1g 'ps:1'; did you mean 'ps:0'"),
        ("cpu-p1w1-1g", explicit(lab1="ps:0", lab2="ps:0"), LAB, "task ps:0 is placed twice"),
        ("cpu-p1w1-1g", explicit(lab1="ps:0"), LAB, "has tasks without a host: worker:0"),
        ("cpu-p1w1-1g", explicit(x="ps:0 ps:7", y="ps:0"), LAB, "host 'x'.*'ps:7'.*host 'y'.*twice.*host: worker:0"),
        ("cpu-p1w1-1g", explicit(lab1="ps:0 worker:0"), LAB, "spans machines, and the placement names one"),
        ("cpu-p1w1-pcie", explicit(a="ps:0", b="worker:0"), TWO, "is one machine, and the placement names 2"),
        ("v100-p1w1-1g", explicit(a="ps:0", b="worker:0"), TWO_WITHOUT, "host 'b' has 0 v100 GPUs, too few"),
        ("v100-p1w1-1g", explicit(b="ps:0", a="worker:0"), MIXED, "host 'b' is not on a 1g network"),
    ],
)
def test_what_cannot_be_placed_says_what_is_needed_and_what_there_is(
    setting: str, policy: Policy, inventory: Inventory, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        place(Setting.parse(setting), policy, inventory)


def test_servers_may_sit_on_hosts_without_gpus() -> None:
    hosts = ssh(gpu_host("a", 2), gpu_host("b", 0))
    assert places("v100-p1w2-1g", explicit(b="ps:0", a="worker:0 worker:1"), hosts) == ["b", "a/0", "a/1"]


def test_local_is_one_machine_with_a_gpu_for_each_worker() -> None:
    assert places("v100-p1w2-pcie", Policy(), Inventory(kind="local")) == ["local", "local/0", "local/1"]
