"""The validation page of the simulator: its errors against measurements, next to those of other predictors.

python benchmarks/simulator_validation.py --write docs/benchmarks/simulator.md

It reads tables of measured and predicted values that the fits write (benchmarks/data/simulator-*.json), so it needs no
measurement file, GPU or TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import simulator_cpu_tables
from pages import parser_of, publish

DATA = Path(__file__).parent / "data"
GPU = DATA / "simulator-gpu.json"
ROWS = DATA / "simulator-cpu.json"

Row = dict[str, Any]

PUBLISHED = (
    ("Habitat (USENIX ATC 2021)", "step time, from a profile on another GPU, six GPUs", "11.8"),
    ("Habitat, V100", "training", "5.4"),
    ("NeuSight (ASPLOS 2025)", "ops of transformers", "8.9"),
    ("plain roofline", "ops of transformers", "16 to 46"),
    ("dPRO (MLSys 2022)", "step time, replayed from a trace of the same job", "below 5"),
    ("Paleo (ICLR 2017)", "scaling of CNNs", "no mean error stated"),
)
"""Who, what is predicted, error in percent. Each on its own measurements: not a contest."""

BATCH = "batch size"
BATCHES = ((16, "up to 16"), (64, "17 to 64"), (10**9, "above 64"))


class Error(NamedTuple):
    """Errors of a group of points in percent."""

    points: int
    mape: float
    median: float
    bias: float


def error(rows: Sequence[Row], predicted: str, measured: str) -> Error:
    shares = [row[predicted] / row[measured] - 1 for row in rows]
    size = [100 * abs(share) for share in shares]
    return Error(len(rows), mean(size), median(size), 100 * mean(shares))


def rows_of(part: dict[str, Any]) -> list[Row]:
    return [dict(zip(part["columns"], row, strict=True)) for row in part["rows"]]


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def shown(found: Error) -> list[object]:
    return [found.points, f"{found.mape:.1f}", f"{found.median:.1f}", f"{found.bias:+.1f}"]


ERROR_HEAD = ("points", "MAPE", "median", "bias")


def by(rows: Sequence[Row], what: str, key: Callable[[Row], object], predicted: str, measured: str) -> str:
    """Errors by a property of the points."""
    values = list(dict.fromkeys(key(row) for row in sorted(rows, key=lambda row: row.get("batch_size", 0))))
    if what != BATCH:
        values.sort(key=str)
    table = [
        [value, *shown(error([row for row in rows if key(row) == value], predicted, measured))] for value in values
    ]
    return markdown((what, *ERROR_HEAD), table)


def batch_range(row: Row) -> str:
    return next(name for most, name in BATCHES if row["batch_size"] <= most)


def single_gpu(part: dict[str, Any]) -> str:
    rows = rows_of(part)
    cases = {
        "fitted on all": "fitted",
        "leaving one model out": "without_model",
        "leaving one GPU out": "without_gpu",
        "leaving one source out": "without_source",
        "FLOPs / peak, times a factor from other models": "flops_over_peak",
    }
    summary = markdown(
        ("step time", *ERROR_HEAD),
        [[name, *shown(error(rows, column, "step_s"))] for name, column in cases.items()],
    )
    benchmark = [row for row in rows if row["framework"].startswith("tensorflow")]
    only = ", ".join(
        f"{name} {error(benchmark, column, 'step_s').mape:.1f} %" for name, column in list(cases.items())[1:4]
    )
    return f"""## Step time on one GPU

{len(rows)} medians of public measurements in FP32 with synthetic input. {len(part["numbers"])} numbers are fitted. The
priors are benchmarks of single ops. All errors are in percent of the measured step time.

{summary}
On the points of tf_cnn_benchmarks alone: {only}.

By model, each left out:

{by(rows, "model", lambda row: row["graph"], "without_model", "step_s")}
By GPU, each left out:

{by(rows, "GPU, framework", lambda row: f"{row['gpu']}, {row['framework'].split()[0]}", "without_gpu", "step_s")}
By batch size, each model left out:

{by(rows, BATCH, batch_range, "without_model", "step_s")}
By source, each left out:

{by(rows, "source", lambda row: row["source"], "without_source", "step_s")}
The largest errors are those of one source on the TITAN RTX, predicted too fast, and on the RTX 2080 Ti, predicted too
slow. The RTX 6000 and 8000 have the chip of the TITAN RTX. So a part of these errors comes from the machines, not from
the GPUs: in that source, five machines with an RTX 2080 Ti need times that differ by up to a factor of 1.56 for one
model and batch size.
"""


def servers(part: dict[str, Any]) -> str:
    rows = rows_of(part)
    cases = {
        "fitted on all": "fitted",
        "leaving one model out": "without_model",
        "leaving one GPU out": "without_gpu",
        "leaving one number of servers out": "without_servers",
    }
    summary = markdown(
        ("speed", *ERROR_HEAD),
        [[name, *shown(error(rows, column, "steps_per_s"))] for name, column in cases.items()],
    )
    numbers = part["numbers"]
    return f"""## Parameter servers

Speed of asynchronous jobs with 2 to 8 workers (CM-DARE), from the speed of one worker. Two numbers of a server are
fitted: {numbers["tensor_s"] * 1e6:.0f} us a tensor and {numbers["byte_s"] * 1e9:.2f} ns a byte, for pull, push and
update together. All workers start at once in every job.

{summary}
By GPU and servers:

{by(rows, "GPU", lambda row: f"{row['gpu']}, {row['servers']} server(s)", "fitted", "steps_per_s")}
By workers:

{by(rows, "workers", lambda row: row["workers"], "fitted", "steps_per_s")}"""


def all_reduce(part: dict[str, Any]) -> str:
    rows = rows_of(part)
    cases = {"leaving one model out": "without_model", "as fast as one GPU": "alone"}
    summary = markdown(
        ("step time", *ERROR_HEAD),
        [[name, *shown(error(rows, column, "step_s"))] for name, column in cases.items()],
    )
    numbers = part["numbers"]
    return f"""## All-reduce in one machine

Step time with 2 to 8 GPUs (tf_cnn_benchmarks, NCCL), from that of one GPU. Two numbers are fitted:
{numbers["ring_bytes_per_s"] / 1e9:.1f} GB/s to the next GPU and {numbers["collective_s"] * 1e6:.0f} us a tensor.
Jobs of several machines have no public measurements that separate computing from input, and are not validated.

{summary}
By GPU:

{by(rows, "GPU", lambda row: row["gpu"], "without_model", "step_s")}
By number of GPUs:

{by(rows, "GPUs", lambda row: row["gpus"], "without_model", "step_s")}
By model:

{by(rows, "model", lambda row: row["model"], "without_model", "step_s")}"""


def measured_rows(figures: dict[str, Any]) -> str:
    """Tables of our own measured rows."""
    return f"""## Processors: the measured rows of this repository

`python benchmarks/simulator_cpu.py` wrote `benchmarks/data/simulator-cpu.json`. Fits take 15 random tries of the timing
constants. Class rates, timing constants and the correction are fitted without the families that are judged. The
structure of the model was chosen while looking at the training and validation sides. `cpu-p1w1-1g` was measured on
another machine: in the last two tables it has one speed factor, from 8 of its training rows. The noise of one
measured run is 0.9 % (p1w1), 7.1 % (p1w2) and 4.1 % (p2w2) of the step time.

{simulator_cpu_tables.tables(figures)}
A correction that was fitted under contention (`cpu-p1w2-1g`) must not be used where there is none: on `cpu-p1w1-1g` it
is worse than the simulator alone.
"""


def others() -> str:
    return f"""## Next to other predictors

{markdown(("predictor", "what", "error, %"), PUBLISHED)}
The figures are those of the publications, each on measurements of its own. Habitat and dPRO need a run of the job;
the simulator needs its graph.
"""


def page(content: dict[str, Any], figures: dict[str, Any]) -> str:
    licences = markdown(("source of measurements", "licence"), sorted(content["licences"].items()))
    parts = (
        single_gpu(content["single_gpu"]),
        servers(content["parameter_servers"]),
        all_reduce(content["multi_gpu"]),
        measured_rows(figures),
        others(),
        f"## Sources\n\n{licences}",
    )
    return f"""# Simulator validation

Everything on this page that is predicted is simulated. Fit of {content["date"]}.

Written by `python benchmarks/simulator_validation.py --write docs/benchmarks/simulator.md` from
`benchmarks/data/simulator-gpu.json`. That file has the measured median and the predictions of every point;
`python -m driple.simulator.fit.cli_devices DATA` writes it with the parameter files of GPUs
([the simulator](../concepts/simulator.md)). The facts of the Driple paper's slides have [a page of their
own](simulator-paper.md).

""" + "\n".join(part for part in parts if part)


def main() -> None:
    """Draws the page."""
    options = parser_of(__doc__).parse_args()
    content = json.loads(GPU.read_text())
    publish(content, page(content, json.loads(ROWS.read_text())), options)


if __name__ == "__main__":
    main()
