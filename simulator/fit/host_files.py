"""Host and fabric files: what is fitted on scaling measurements, and what is assumed."""

from __future__ import annotations

from driple.contracts.formats.device import FABRIC, HOST, DeviceFile, Parameter
from driple.simulator.fit.gpu_model import Origin
from driple.simulator.host_model import HostModel
from driple.simulator.parameter_files import GOODPUT, LINK

GPU_SERVER = "gpu-server"
CM_DARE = "fit of the scaling of CM-DARE's asynchronous jobs (github cake-lab/CM-DARE@263b7f1, Apache-2.0)"
LAMBDA = (
    "fit of all-reduce in one machine (github lambdal/lambda-tensorflow-benchmark@c17619d, BSD-3); error: leaving"
    " models out"
)

_ASSUMED: dict[str, tuple[float, str, str]] = {
    "worker_s_per_byte": (
        2.5e-9,
        "s/B",
        "0.4 GB/s of a channel between two processes: RX burst of workload 1 in the slides of the Driple paper",
    ),
    "session_s": (2e-3, "s", "assumed"),
    "barrier_s": (2e-3, "s", "assumed"),
    "latency_s": (5e-5, "s", "assumed"),
    "noise": (0.03, "1", "assumed"),
    "start_phase": (0.0, "1", "workers start together; with this, CM-DARE is reproduced best"),
    "pcie_bytes_per_s": (
        12e9,
        "B/s",
        "PCIe 3.0 x16: 15.75 GB/s without protocol overhead; about 12 GB/s in copies of pinned memory",
    ),
}
_OF_BYTE = {
    "server_send_s_per_byte": (0.5, "half of the time of a byte, pull, push and update together"),
    "server_receive_s_per_byte": (0.25, "a quarter of the time of a byte"),
    "apply_s_per_byte": (0.25, "a quarter of the time of a byte"),
}
_ONE_PROCESS = 0.93
"""Share of a fast link that one process reaches beside the protocol's share."""
_FABRICS = {"1g": (1e9, 1.0), "10g": (10e9, 0.98), "40g": (40e9, _ONE_PROCESS)}


def assumed_host() -> HostModel:
    """A GPU server before the fit."""
    stated = {name: value for name, (value, _, _) in _ASSUMED.items()}
    return HostModel(
        rpc_s=0.0, server_send_s_per_byte=0.0, server_receive_s_per_byte=0.0, apply_s_per_byte=0.0, **stated
    )


def host_file(
    tensor_s: float, byte_s: float, rate: float, collective_s: float, servers: Origin, collectives: Origin
) -> DeviceFile:
    """The file of a GPU server.

    Args:
        tensor_s: a server's time for a tensor, both directions.
        byte_s: its time for a byte, both directions and the update.
        rate: of a ring of GPUs, from one to the next.
        collective_s: starting the all-reduce of a tensor.
        servers: of the fit of the first two.
        collectives: of the fit of the others.
    """
    found = {name: Parameter(value, unit, source, servers.date) for name, (value, unit, source) in _ASSUMED.items()}
    found["rpc_s"] = Parameter(
        tensor_s / 2, "s per tensor and direction", CM_DARE, servers.date, servers.points, servers.error_pct
    )
    for name, (share, note) in _OF_BYTE.items():
        found[name] = Parameter(
            byte_s * share, "s/B", f"{CM_DARE}; {note}", servers.date, servers.points, servers.error_pct
        )
    for name, value, unit in (("collective_s", collective_s, "s per tensor"), ("nccl_bytes_per_s", rate, "B/s")):
        found[name] = Parameter(value, unit, LAMBDA, collectives.date, collectives.points, collectives.error_pct)
    return DeviceFile(GPU_SERVER, "TensorFlow's gRPC runtime on a GPU server", HOST, found)


def fabric_files(date: str) -> list[DeviceFile]:
    """The files of Ethernet links."""
    found = []
    for name, (bits, share) in _FABRICS.items():
        source = f"TCP payload of {bits / 1e9:g} Gbit/s Ethernet with 1500-byte packets: {GOODPUT:.0%}"
        source += f", of which one process is assumed to reach {share:.0%}" if share < 1 else ""
        rate = Parameter(bits / 8 * GOODPUT * share, "B/s", source, date)
        found.append(DeviceFile(name, f"Ethernet, {name}", FABRIC, {LINK: rate}))
    return found
