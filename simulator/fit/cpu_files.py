"""Device and host files of a processor from fitted rates and timing constants."""

from __future__ import annotations

from dataclasses import fields

from driple.contracts.formats.device import CPU, HOST, MACHINE, DeviceFile, Parameter
from driple.contracts.setting import Setting
from driple.simulator.fit.op_rates import OpRates
from driple.simulator.fit.server_rates import ServerRates
from driple.simulator.host_model import HostModel
from driple.simulator.op_costs import BANDWIDTH, BYTE_COST, FLOP_COST, LAUNCH, MEMORY_COST, NARROW, PEAK, SPEED

DIGITS = 4
"""Significant digits of a stored value."""


def device_file(rates: OpRates, source: str, date: str, name: str = "cpu", speed: float = 1.0) -> DeviceFile:
    """A device file. Peak and bandwidth are those of the fastest class, costs are multiples of them."""
    peak, bandwidth = _fastest(rates.flop_s), _fastest(rates.byte_s)
    values = {PEAK: (peak, "FLOP/s"), BANDWIDTH: (bandwidth, "B/s"), SPEED: (speed, "1")}
    values |= {f"{FLOP_COST}.{kind}": (value * peak, "1") for kind, value in {**rates.flop_s, "other": 0.0}.items()}
    values |= {f"{BYTE_COST}.{kind}": (value * bandwidth, "1") for kind, value in rates.byte_s.items()}
    values |= {f"{LAUNCH}.default": (rates.op_s, "s"), f"{LAUNCH}.free": (rates.free_op_s, "s")}
    values |= {f"{MEMORY_COST}.default": (0.0, "1"), NARROW: (rates.narrow, "channels")}
    text = f"{source}: processor seconds of workers; median error on families that were held back"
    return _file(name, "A processor core", CPU, values, text, date, rates.points, rates.error_pct)


def host_values(rates: OpRates, servers: ServerRates) -> dict[str, float]:
    """Parameters of a host that follow from processor seconds."""
    return {
        "cpu_worker_s_per_byte": rates.moved_s,
        "cpu_worker_s_per_tensor": rates.tensor_s,
        "cpu_session_s": rates.session_s,
        "cpu_server_s_per_byte": servers.byte_s,
        "cpu_server_s_per_tensor": servers.tensor_s,
        "cpu_apply_s_per_byte": servers.apply_s,
        "cpu_server_session_s": servers.session_s,
    }


def host_file(host: HostModel, source: str, date: str, points: int, error_pct: float, name: str) -> DeviceFile:
    """A host file with all parameters that are not 0, or needed."""
    units = {"cores": "processors", "noise": "1", "start_phase": "1", "parallel": "processors"}
    values = {}
    for one in fields(HostModel):
        value = getattr(host, one.name)
        per_byte, rate = one.name.endswith("_per_byte"), one.name.endswith("_bytes_per_s")
        unit = "s/B" if per_byte else "B/s" if rate else units.get(one.name, "s")
        if value or one.default != 0.0:
            values[one.name] = (value, unit)
    return _file(
        name, "TensorFlow's gRPC runtime on processors that tasks share", HOST, values, source, date, points, error_pct
    )


def machine_file(device: DeviceFile, setting: Setting) -> DeviceFile:
    """The machine file of a setting: the fitted speed of a device file alone."""
    title = f"The machine of the measured rows of {setting}"
    note = f"Beside the machine of the device file {device.name}."
    return DeviceFile(str(setting), title, MACHINE, {SPEED: device.parameters[SPEED]}, (note,))


def _fastest(seconds: dict[str, float]) -> float:
    return 1 / min(value for value in seconds.values() if value > 0)


def _file(
    name: str,
    title: str,
    kind: str,
    values: dict[str, tuple[float, str]],
    source: str,
    date: str,
    points: int,
    error_pct: float,
) -> DeviceFile:
    parameters = {
        key: Parameter(float(f"{value:.{DIGITS}g}"), unit, source, date, points, round(error_pct, 1))
        for key, (value, unit) in values.items()
    }
    return DeviceFile(name, title, kind, parameters)
