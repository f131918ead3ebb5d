"""The section of docs/benchmarks/results.md on how many workloads must be measured, and its picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from results_text import COLOURS, Found, head, spread, within

WAYS = (
    "scratch",
    "half",
    "mlp",
    "s, scratch",
    "s, half",
    "s, mlp",
    *(f"{way} faster, {of}" for way in ("half", "mlp") for of in ("epochs", "all")),
)
"""Columns of `_moved`."""


def section(found: Found) -> list[str]:
    """Its lines."""
    lines = [
        "## How many workloads are needed, and what transfer saves",
        "",
        "Training and validation rows are drawn by seed; split by architecture; always the complete test side.",
        f"Transfers start from {found['source']}: `half` freezes the first half of the graph's layers, `mlp` "
        f"everything "
        "except the head.",
        "The columns are NRMSE, then seconds of training including preparation. `faster` is the wall time from scratch",
        "divided by that of the transfer, to the validation error that both reach: epochs only (`epochs`) and with all",
        "preparation (`all`).",
        "",
    ]
    for setting, one in found["settings"].items():
        lines += [
            f"{setting}:",
            "",
            *head("rows", "trees", *WAYS),
        ]
        for size in sorted({trial["rows"] for trial in one["trials"]}):
            trials = [trial for trial in one["trials"] if trial["rows"] == size]
            lines.append(
                f"| {size} | {spread([t['trees']['nrmse']['all'] for t in trials])} | {_moved(trials, 'driple')}"
            )
        lines.append("")
        full = [trial for trial in one["trials"] if "paper" in trial]
        if not full:
            continue
        lines += [
            f"Other inspectors with all {full[0]['rows']} rows:",
            "",
            *head("inspector", *WAYS),
            *(
                f"| {name} | {_moved(full, name)}"
                for name in full[0]
                if name not in ("rows", "seed", "trees", "driple")
            ),
            "",
        ]
    return [*lines, "![errors by number of rows](results/rows.png)", ""]


def _moved(trials: Sequence[Found], name: str) -> str:
    ways = ("scratch", "half", "mlp")
    errors = [spread([trial[name][way]["nrmse"]["all"] for trial in trials]) for way in ways]
    seconds = [f"{statistics.median(trial[name][way]['seconds'] for trial in trials):.1f}" for way in ways]
    faster = []
    for way in ways[1:]:
        for what in ("times_faster", "times_faster_from_the_beginning"):
            times = [trial[name][way][what] for trial in trials]
            known = [each for each in times if each is not None]
            faster.append(f"{statistics.median(known):.1f}x ({within(known, 1)})" if known else "-")
    return f"{' | '.join([*errors, *seconds, *faster])} |"


def draw(found: Found, folder: Path) -> None:
    """Writes rows.png."""
    from matplotlib import pyplot

    settings = found["settings"]
    figure, axes = pyplot.subplots(
        1, len(settings), figsize=(5 * len(settings), 3.2), squeeze=False, layout="constrained"
    )
    for axis, (setting, one) in zip(axes[0], settings.items(), strict=True):
        sizes = sorted({trial["rows"] for trial in one["trials"]})
        for name, style in (("trees", "s-"), ("scratch", "o-"), ("half", "^--"), ("mlp", "v:")):
            medians = [
                100
                * statistics.mean(
                    (trial["trees"] if name == "trees" else trial["driple"][name])["nrmse"]["all"]
                    for trial in one["trials"]
                    if trial["rows"] == size
                )
                for size in sizes
            ]
            label = name if name in ("trees", "scratch") else f"transferred, {name} tuned"
            axis.plot(sizes, medians, style, color=COLOURS["trees" if name == "trees" else "driple"], label=label)
        axis.set_title(setting)
        axis.set_xlabel("workloads to learn from")
        axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("NRMSE of the test rows, %")
    axes[0][0].legend(frameon=False)
    figure.savefig(folder / "rows.png", dpi=90, metadata={"Software": None})
    pyplot.close(figure)
