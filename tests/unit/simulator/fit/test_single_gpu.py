"""The fit of GPUs: it recovers numbers from times that were computed with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.simulator.fit.gpu_model import GROUPS, NAMES, START, device_file, named
from driple.simulator.fit.gpus import GPUS
from driple.simulator.fit.op_benchmarks import Affine, Prior, Timed, affine
from driple.simulator.fit.single_gpu import Fit, Measured, mape, read_measured, step_of
from driple.simulator.op_costs import op_costs

FLOPS = Prior(1.2, 0.8, "made")
BYTES = Prior(0.0, 1.3, "made")
KNOWN = {
    kind: FLOPS if kind.startswith(("conv", "matmul", "depthwise")) else BYTES
    for kinds in GROUPS.values()
    for kind in kinds
}


def rows(truth: Callable[[Measured], float] = lambda row: 1.0) -> list[Measured]:
    made = []
    for gpu in ("v100", "1080ti"):
        for graph in ("resnet50", "alexnet", "inception3", "mobilenetv2", "densenet121", "vgg11"):
            for framework in ("tensorflow 2.2", "pytorch 1.4"):
                row = Measured("made", gpu, framework, graph, graph, 32, 1.0)
                made.append(Measured("made", gpu, framework, graph, graph, 32, truth(row)))
    return made


def test_the_fit_recovers_the_numbers_behind_simulated_times() -> None:
    true = START.copy()
    for name, factor in {"conv_winograd": 0.8, "by_bytes": 1.25, "slower_pytorch": 1.15, "bytes_pascal": 1.2}.items():
        true[NAMES.index(name)] += np.log(factor)
    plain = Fit(rows(), KNOWN)
    times = dict(zip(plain.rows, plain.predict(true, plain.rows).tolist(), strict=True))
    fit = Fit(rows(lambda row: times[row]), KNOWN)
    found = fit.fit()
    assert mape(fit.predict(found, fit.rows), [row.step_s for row in fit.rows]) < 1.0
    for name in ("conv_winograd", "by_bytes", "slower_pytorch", "bytes_pascal"):
        number = NAMES.index(name)
        # The pull to the priors keeps a part of the way.
        assert abs(found[number] - true[number]) < abs(START[number] - true[number]) / 2, name
    assert fit.fit().tolist() == found.tolist()


def test_left_out_rows_do_not_reach_their_own_prediction() -> None:
    usual = Fit(rows(), KNOWN)
    times = dict(zip(usual.rows, usual.predict(START, usual.rows).tolist(), strict=True))
    strange = Fit(rows(lambda row: times[row] * (3.0 if row.graph == "alexnet" else 1.0)), KNOWN)
    predicted = strange.left_out(lambda row: "alexnet" if row.model == "alexnet" else "others")
    alexnet = [number for number, row in enumerate(strange.rows) if row.graph == "alexnet"]
    assert predicted[alexnet] == pytest.approx([times[usual.rows[number]] for number in alexnet], rel=0.02)


def test_a_file_gives_the_times_that_were_fitted() -> None:
    row = Measured("made", "1080ti", "tensorflow 1.15", "resnet50", "resnet50", 64, 1.0)
    fit = Fit([row], KNOWN)
    file = device_file("1080ti", named(START), KNOWN)
    assert fit.predict(START, [row])[0] == op_costs(step_of("resnet50", 64), file).wall_s.sum()


def test_a_gpu_without_steps_has_the_peak_that_it_reaches_beside_a_v100() -> None:
    slow = device_file("t4", named(START), KNOWN, beside=Affine(1e-5, 1.25, 1.1, 5.0))
    assert slow.value("peak_flops_per_s") == pytest.approx(GPUS["t4"].peak_flops_per_s / 1.25)
    assert slow.value("memory_bytes_per_s") == pytest.approx(GPUS["t4"].memory_bytes_per_s / 1.25)


def test_op_times_give_their_coefficients() -> None:
    gpu = GPUS["v100"]
    amounts = [(1e9 * a, 1e6 * b) for a in (1, 3, 10) for b in (1, 5, 40)]
    ops = [
        Timed("x", f, b, 2e-5 + 1.5 * f / gpu.peak_flops_per_s + 0.7 * b / gpu.memory_bytes_per_s) for f, b in amounts
    ]
    found = affine(ops, gpu)
    assert found[:3] == pytest.approx((2e-5, 1.5, 0.7), rel=1e-3)


def test_no_op_needs_fewer_multiplications_than_its_algorithm() -> None:
    # Bound by bytes and noisy: the free fit has almost no cost of FLOPs, and says nothing about a large layer.
    gpu = GPUS["v100"]
    amounts = [(1e9 * a, 4e8 * a) for a in (1.0, 2.0, 5.0)]
    ops = [Timed("x", f, b, 0.05 * f / gpu.peak_flops_per_s + 3 * b / gpu.memory_bytes_per_s) for f, b in amounts]
    found = affine(ops, gpu, 0.25)
    assert found.flop_cost == pytest.approx(0.25) and found.byte_cost < 3.0
    assert found.launch_s >= 0 and found.error_pct < 5


HEADER = "source,gpu,framework,graph,model,batch_per_gpu,step_s\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("gpu,model\n", "no column source"),
        (HEADER + "s,v100,tensorflow 2,resnet50,resnet50,many,0.1\n", "invalid literal"),
        (HEADER + "s,abacus,tensorflow 2,resnet50,resnet50,32,0.1\n", "no row of a known GPU"),
    ],
)
def test_another_table_is_bad_input(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "calibration_1gpu.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=message) as raised:
        read_measured(path)
    assert str(raised.value).startswith(str(path))
