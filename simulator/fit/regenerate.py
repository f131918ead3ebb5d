"""Fits everything that public GPU measurements say, and writes the parameter files and a table of errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import SUFFIX, read_device
from driple.contracts.run_dir import replacing
from driple.simulator.fit import multi_gpu, ps_scaling
from driple.simulator.fit.gpu_model import FITTED, Origin, device_file, named, slower_file
from driple.simulator.fit.gpus import GPUS, SLOWER
from driple.simulator.fit.host_files import CM_DARE, assumed_host, fabric_files, host_file
from driple.simulator.fit.op_benchmarks import Prior, beside_reference, priors, table
from driple.simulator.fit.single_gpu import KEYS, Fit, mape, read_measured
from driple.simulator.host_model import HostModel, host_model

ONE_GPU = "calibration_1gpu.csv"
SERVERS = "ps_cmdare.csv"
SPEEDS = "measured.csv"
DIGITS = 4
Say = Callable[[str], None]


def regenerate(data: Path, output: Path, errors: Path, date: str, say: Say) -> None:
    """Writes `devices/`, `hosts/` and `fabrics/` below `output`, and the table of errors.

    Args:
        data: folder of the public measurements.
        output: the folder of the simulator.
        errors: JSON file of measured and predicted values of every point.
        date: of the fit, which the files state.
        say: prints a line of progress.

    Raises:
        BadInput: a measurement file is missing or another one, or a folder does not exist.
    """
    for folder in (output, errors.parent):
        if not folder.is_dir():
            raise BadInput(f"{folder}: no such folder; run this in a checkout of driple")
    licences = {row["source"]: row["licence"] for row in table(data / SPEEDS, ("source", "licence"))}
    # All tables are read before the fits, which take minutes.
    server_rows, job_rows = ps_scaling.read_rows(data / SERVERS), multi_gpu.read_rows(data / SPEEDS)
    single = _single_gpu(data, output, date, priors(data), say)
    servers, collectives = _hosts(server_rows, job_rows, output, date, say)
    used = {row[0] for row in single["rows"]} | {row[0] for row in collectives["rows"]}
    content = {
        "schema": "simulator-gpu-errors",
        "schema_version": 1,
        "date": date,
        "licences": {name: licences.get(name, "") for name in sorted(used)} | {CM_DARE_SOURCE: "Apache-2.0"},
        "single_gpu": single,
        "parameter_servers": servers,
        "multi_gpu": collectives,
    }
    with replacing(errors) as stream:
        stream.write(_lines(content))


CM_DARE_SOURCE = "cake-lab/CM-DARE@263b7f1"


def _single_gpu(data: Path, output: Path, date: str, known: dict[str, Prior], say: Say) -> dict[str, Any]:
    fit = Fit(read_measured(data / ONE_GPU), known)
    measured = [row.step_s for row in fit.rows]
    logs = fit.fit()
    columns = {"fitted": fit.predict(logs, fit.rows)}
    for name, key in KEYS.items():
        columns[f"without_{name}"] = fit.left_out(key)
        say(f"step time of one GPU, leaving one {name} out: {mape(columns[f'without_{name}'], measured):.1f} %")
    columns["flops_over_peak"] = fit.by_peak()
    numbers = named(logs)
    origin = Origin(len(measured), round(mape(columns["without_model"], measured), 1), date)
    timed = {row.gpu for row in fit.rows}
    for gpu in GPUS:
        beside = None if gpu in timed else beside_reference(data, gpu)
        if gpu not in timed and beside is None:
            say(f"{gpu}: neither steps nor ops were measured; its file stays as it is")
            continue
        file = device_file(gpu, numbers, known, beside=beside, origin=origin)
        file.write(output / "devices" / f"{gpu}{SUFFIX}")
    rows = [
        [
            *(row.source, row.gpu, row.framework, row.graph, row.batch_size, _short(row.step_s)),
            *(_short(float(values[number])) for values in columns.values()),
        ]
        for number, row in enumerate(fit.rows)
    ]
    names = ["source", "gpu", "framework", "graph", "batch_size", "step_s", *columns]
    return {"fit": FITTED, "numbers": {k: _short(v) for k, v in numbers.items()}, "columns": names, "rows": rows}


def _hosts(
    server_rows: Sequence[ps_scaling.ScalingRow],
    job_rows: Sequence[multi_gpu.MultiGpuRow],
    output: Path,
    date: str,
    say: Say,
) -> tuple[dict[str, Any], dict[str, Any]]:
    host = assumed_host()
    servers = ps_scaling.scaling(server_rows, host)
    speeds = [row.steps_per_s for row in servers.rows]
    point = servers.best()
    server_columns = {
        "fitted": servers.at(point),
        "without_model": servers.left_out(lambda row: row.model),
        "without_gpu": servers.left_out(lambda row: row.gpu),
        "without_servers": servers.left_out(lambda row: row.servers),
    }
    for name, values in server_columns.items():
        say(f"speed with parameter servers, {name.replace('_', ' ')}: {mape(values, speeds):.1f} %")

    jobs = multi_gpu.scaling(job_rows, host)
    times = [row.step_s for row in jobs.rows]
    middle = jobs.best()
    job_columns = {
        "fitted": jobs.at(middle),
        "without_model": jobs.left_out(lambda row: row.model, among=lambda row: row.interconnect),
        "alone": [row.alone_s for row in jobs.rows],
    }
    say(f"all-reduce in one machine, leaving one model out: {mape(job_columns['without_model'], times):.1f} %")
    (tensor_s, byte_s), (rate, collective_s) = servers.grid[point], jobs.grid[middle]
    file = host_file(
        tensor_s,
        byte_s,
        rate,
        collective_s,
        Origin(len(speeds), round(mape(server_columns["fitted"], speeds), 1), date),
        Origin(len(times), round(mape(job_columns["without_model"], times), 1), date),
    )
    file.write(output / "hosts" / f"{file.name}{SUFFIX}")
    _slower(server_rows, output / "devices", host_model(file), date)
    for fabric in fabric_files(date):
        fabric.write(output / "fabrics" / f"{fabric.name}{SUFFIX}")
    return (
        {
            "fit": CM_DARE,
            "numbers": {"tensor_s": _short(tensor_s), "byte_s": _short(byte_s)},
            **_table(("gpu", "model", "servers", "workers", "steps_per_s"), servers.rows, server_columns),
        },
        {
            "numbers": {"ring_bytes_per_s": _short(rate), "collective_s": _short(collective_s)},
            **_table(
                ("source", "gpu", "model", "batch_size", "interconnect", "gpus", "step_s"), jobs.rows, job_columns
            ),
        },
    )


def _slower(rows: Sequence[ps_scaling.ScalingRow], devices: Path, host: HostModel, date: str) -> None:
    """The files of GPUs of which only ratios of computing times are known."""
    for gpu, (title, other) in SLOWER.items():
        factors = ps_scaling.times_as_long(rows, gpu, other, host)
        if factors:
            factor = float(np.median(factors))
            spread = 100 * float(np.mean(np.abs(np.array(factors) / factor - 1)))
            origin = Origin(len(factors), round(spread, 1), date)
            source = f"median ratio of computing times of {CM_DARE.removeprefix('fit of ')}; error: spread over models"
            path = devices / f"{gpu}{SUFFIX}"
            known = read_device(devices / f"{other}{SUFFIX}")
            slower_file(gpu, title, known, factor, source, origin).write(path)


def _table(names: Sequence[str], rows: Sequence[object], columns: dict[str, list[float]]) -> dict[str, Any]:
    """The named fields of all rows, and the columns beside them."""
    filled = [
        [*(_short(getattr(row, name)) for name in names), *(_short(values[number]) for values in columns.values())]
        for number, row in enumerate(rows)
    ]
    return {"columns": [*names, *columns], "rows": filled}


def _short(value: Any) -> Any:
    """Four significant digits."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float | np.floating) else value


def _lines(content: dict[str, Any]) -> str:
    """JSON with one line for each row of a table."""
    tables = {name: part for name, part in content.items() if isinstance(part, dict) and "rows" in part}
    plain = {**content, **{name: {**part, "rows": []} for name, part in tables.items()}}
    text = json.dumps(plain, indent=1)
    for part in tables.values():
        rows = ",\n".join(f"   {json.dumps(row)}" for row in part["rows"])
        text = text.replace('"rows": []', f'"rows": [\n{rows}\n  ]', 1)
    return text + "\n"
