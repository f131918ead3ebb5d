"""One command regenerates the parameter files: here from a few measurements that are computed."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from driple.contracts.formats.device import read_device
from driple.simulator.fit.cli_devices import main
from driple.simulator.fit.gpu_model import START, device_file, named
from driple.simulator.fit.gpus import GPUS
from driple.simulator.fit.op_benchmarks import priors
from driple.simulator.fit.single_gpu import step_of
from driple.simulator.op_costs import op_costs

DATE = "2026-01-02"


def write(path: Path, columns: str, rows: list[tuple[object, ...]]) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as stream:
        csv.writer(stream).writerows([columns.split(","), *rows])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of measurements of computed ops, steps and jobs."""
    folder = tmp_path / "data"
    folder.mkdir()
    amounts = [(flops, size) for flops in (1e9, 4e9, 2e10) for size in (1e6, 8e6, 5e7)]

    def seconds(gpu: str, flops: float, size: float) -> float:
        return 2e-5 + flops / GPUS[gpu].peak_flops_per_s + 2 * size / GPUS[gpu].memory_bytes_per_s

    write(
        folder / "op_conv_deepbench_v100.csv",
        "op,kk,stride,Input_Channel,Output_Channel,flops,byts,s",
        [
            (op, window, stride, 64, 64, flops, size, seconds("v100", flops, size))
            for op in ("conv_fwd", "conv_bwd_input", "conv_bwd_filter")
            for window, stride in ((1.0, 1), (9.0, 1), (9.0, 2))
            for flops, size in amounts
        ],
    )
    write(
        folder / "op_gemm_deepbench_v100.csv",
        "M,N,K,ms,flops",
        [(n, n, n, 1e3 * seconds("v100", 2.0 * n**3, 12.0 * n**2), 2.0 * n**3) for n in (512, 1024, 2048)],
    )
    write(
        folder / "op_conv_neusight.csv.gz",
        "gpu,op,Input_Channel,Output_Channel,flops,byts,s",
        [
            (gpu, "conv_fwd", 64, 64, flops, size, seconds(gpu, flops, size))
            for gpu in ("v100", "p100", "t4")
            for flops, size in amounts
        ],
    )
    known = priors(folder)
    write(
        folder / "calibration_1gpu.csv",
        "source,gpu,framework,graph,model,batch_per_gpu,step_s",
        [
            (source, gpu, source, model, model, 32, op_costs(step_of(model, 32), file).wall_s.sum())
            for gpu in ("v100", "2080ti")
            for source in ("tensorflow", "pytorch")
            for file in [device_file(gpu, named(START), known, framework=source)]
            for model in ("resnet20", "lenet")
        ],
    )
    write(
        folder / "ps_cmdare.csv",
        "gpu,model,servers,workers,steps_per_s,params,tensors",
        [
            (gpu, model, servers, workers, speed * workers, 1e6, 20)
            for gpu, model, servers, speed in (
                ("k80", "small", 1, 2.0),
                ("p100", "small", 1, 5.0),
                ("p100", "smaller", 2, 5.0),
            )
            for workers in (1, 2)
        ],
    )
    write(
        folder / "measured.csv",
        "source,licence,gpu,gpu_as_named,model,precision,xla,mode,batch_per_gpu,gpus,nodes,interconnect,step_s",
        [
            ("tensorflow", "MIT", "v100", "one", model, "fp32", 0, "replicated-nccl", 32, gpus, 1, "pcie", 0.1 * gpus)
            for model in ("resnet20", "lenet")
            for gpus in (1, 2)
        ],
    )
    return folder


def folders(path: Path) -> tuple[Path, Path]:
    for name in ("devices", "hosts", "fabrics"):
        (path / name).mkdir(parents=True)
    return path, path / "errors.json"


def run(data: Path, output: Path, errors: Path) -> int:
    return main([str(data), "--output", str(output), "--errors", str(errors), "--date", DATE])


def test_equal_measurements_give_equal_and_complete_files(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (folders(tmp_path / name) for name in ("one", "other"))
    assert run(data, *one) == run(data, *other) == 0
    names = [path.relative_to(one[0]) for path in sorted(one[0].glob("**/*.json"))]
    assert {name.stem for name in names if name.parts[0] == "devices"} == {"v100", "2080ti", "p100", "t4", "k80"}
    assert [(one[0] / name).read_bytes() for name in names] == [(other[0] / name).read_bytes() for name in names]
    assert {read_device(one[0] / name).parameters.popitem()[1].date for name in names[:-1] if len(name.parts) > 1} == {
        DATE
    }
    content = json.loads(one[1].read_text())
    table = content["single_gpu"]
    assert len(table["rows"]) == 8 and {len(row) for row in table["rows"]} == {len(table["columns"])}
    # The steps were computed with the priors, so the fit is exact.
    measured, fitted = (table["columns"].index(name) for name in ("step_s", "fitted"))
    assert [row[fitted] for row in table["rows"]] == pytest.approx([row[measured] for row in table["rows"]], rel=0.01)
    assert content["licences"]["tensorflow"] == "MIT"
    said = capsys.readouterr().out
    assert "leaving one model out: 0." in said and "titanv: neither steps nor ops" in said


@pytest.mark.parametrize("missing", ["op_gemm_deepbench_v100.csv", "ps_cmdare.csv", "measured.csv"])
def test_a_missing_table_is_named(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str) -> None:
    output, errors = folders(tmp_path / "out")
    (data / missing).unlink()
    assert run(data, output, errors) == 2
    message = capsys.readouterr().err
    assert f"{data / missing}: No such file" in message and message.count("\n") == 1


def test_another_folder_than_a_checkout_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(data, tmp_path / "nothing", tmp_path / "errors.json") == 2
    assert "no such folder; run this in a checkout" in capsys.readouterr().err


def test_a_date_is_checked(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(data), "--date", "yesterday"]) == 2
    assert "--date: expected a date" in capsys.readouterr().err
