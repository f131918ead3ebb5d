"""How long people wait for a prediction: from a cold shell with a graph file, and with all loaded.

    python benchmarks/predicting.py [--rounds 9] [--json] [--write docs/benchmarks/prediction-speed.md]

Graphs are those of the zoo, made first by TensorFlow. Cold is the whole command, beside `python -c "import torch"`,
which any answer of a network has to wait for. Warm is one answer of a loaded inspector to a loaded graph that it has
not seen: grouping, networks, spread and nearness. All take turns in each round. Run it on a quiet machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from pages import machine, parser_of, publish

from driple.contracts.setting import Setting
from driple.inspector.predict.predictor import Inspector
from driple.inspector.predict.request import PredictionRequest, queries
from driple.pipeline.graph.public import forget_wirings, read_graph

SETTING = "cpu-p2w2-1g"
MODELS = ("lenet", "mobilenet", "resnet56", "gpt2_small", "densenet121", "nasnet")
"""From the smallest graph of the zoo to the largest."""
COLD, BASELINE = "driple-predict --graph, {model}", "python -c 'import torch'"
COLD_LIMIT_S, WARM_LIMIT_MS = 4.0, 50.0


def seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def command(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def measure(rounds: int, inspectors: Path) -> dict[str, Any]:
    """Figures of every round, by what was done."""
    cold: dict[str, list[float]] = {}
    warm: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        made = ["--model", *MODELS, "--setting", SETTING, "--out", str(folder)]
        command(sys.executable, "-m", "driple.workloads.cli", "graph", *made)
        files = {model: folder / f"{model}.parquet" for model in MODELS}
        oracle = Inspector(inspectors / SETTING, Path("datasets"))
        asked = {
            m: queries(PredictionRequest(settings=(Setting.parse(SETTING),), graph=path)) for m, path in files.items()
        }
        predict = str(Path(sys.executable).with_name("driple-predict"))
        options = ["--setting", SETTING, "--inspectors", str(inspectors), "--graph"]
        lines = {BASELINE: [sys.executable, "-c", "import torch"]}
        lines |= {COLD.format(model=m): [predict, *options, str(files[m])] for m in (MODELS[2], MODELS[-1])}
        for _ in range(rounds):
            for name, line in lines.items():
                cold.setdefault(name, []).append(seconds(lambda line=line: command(*line)))  # type: ignore[misc]
            for model, path in files.items():
                graph = read_graph(path)
                forget_wirings()  # what was grouped once is kept
                ask = asked[model]
                took = seconds(lambda ask=ask, graph=graph: oracle.answer(ask, [graph] * len(ask)))  # type: ignore[misc]
                warm.setdefault(f"{model}, {len(graph.ops)} ops", []).append(1000 * took)
    return {"cold_s": cold, "warm_ms": warm}


def markdown(found: dict[str, Any]) -> str:
    cold, warm = found["cold_s"], found["warm_ms"]
    base = statistics.median(cold[BASELINE])
    slowest = max(statistics.median(values) for values in cold.values())
    longest = max(statistics.median(values) for values in warm.values())

    def verdict(what: str, value: float, limit: float, unit: str) -> str:
        return (
            f"- {what}: {value:.1f} {unit}, {'reached' if value < limit else 'NOT reached'} (under {limit:g} {unit})."
        )

    cold_rows = [f"| `{n}` | {_spread(v, 2)} | {statistics.median(v) / base:.2f} |" for n, v in cold.items()]
    warm_rows = [f"| {name} | {_spread(values, 1)} |" for name, values in warm.items()]
    return f"""# Prediction speed

{found["machine"]}; {found["date"]}; {found["rounds"]} rounds with all candidates in turn; medians (range). The
inspector of {SETTING} has {found["networks"]} networks. Reproduce with
`python benchmarks/predicting.py --write docs/benchmarks/prediction-speed.md`; its docstring describes the method.

{verdict("from a cold shell with a graph file, the slower one", slowest, COLD_LIMIT_S, "s")}
{verdict("warm, the slowest of all", longest, WARM_LIMIT_MS, "ms")}

| from a cold shell | seconds | relative to importing torch |
|---|---|---|
{chr(10).join(cold_rows)}

| warm | ms |
|---|---|
{chr(10).join(warm_rows)}

Warm, most of the time goes into grouping the graph. One thread is used: with more, an answer takes longer on a busy
machine.
"""


def _spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="(%(default)s)")
    parser.add_argument("--inspectors", type=Path, default=Path("inspectors"), help="(%(default)s)")
    options = parser.parse_args()
    found = {
        "machine": machine(),
        "date": str(date.today()),
        "rounds": options.rounds,
        "networks": Inspector(options.inspectors / SETTING, Path("datasets")).info.networks,
        **measure(options.rounds, options.inspectors),
    }
    publish(found, markdown(found), options)


if __name__ == "__main__":
    main()
