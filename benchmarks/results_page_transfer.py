"""The section of docs/benchmarks/results.md on how much sooner a transfer is there, and its picture."""

from __future__ import annotations

import statistics
from pathlib import Path

from results_text import COLOURS, Found, head, spread

CLOCKS = {
    "loop": "epochs",
    "fitted": "with reading the source, workload features, base model",
    "all": "with the grouping of graphs as well",
}


def section(found: Found) -> list[str]:
    """Its lines."""
    wanted, settings = found["wanted"], found["settings"]
    count = len(next(iter(settings.values())))
    lines = [
        "## How much faster a transfer is",
        "",
        f"All rows, one network, `{found['tune']}` trained, from {found['source']}. {count} seeds that were not used "
        "before. What is measured",
        "and what counts (medians) was fixed before the measurement (benchmarks/results_transfer.py). `faster` is the",
        "wall time from scratch divided by that of the transfer, to the validation NRMSE that both reach, "
        "with quartiles",
        f"in brackets; `total` is that of all seeds together. The paper reports up to {wanted}x; the authors' "
        f"published "
        "program",
        "times epochs only.",
        "",
        *head("setting", "counted", "s, scratch", "s, transfer", "faster", "total", f"seeds with {wanted}x or more"),
    ]
    for setting, seeds in settings.items():
        for clock, shown in CLOCKS.items():
            ratios = [seed["faster"][clock] for seed in seeds]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            scratch, moved = ([seed["seconds"][way][clock] for seed in seeds] for way in ("scratch", "moved"))
            verdict = "" if middle >= wanted else ", NOT reached"
            lines.append(
                f"| {setting} | {shown} | {statistics.median(scratch):.2f} | {statistics.median(moved):.3f} | "
                f"{middle:.1f}x ({low:.1f} to {high:.1f}){verdict} | {sum(scratch) / sum(moved):.1f}x | "
                f"{sum(ratio >= wanted for ratio in ratios)} of {count} |"
            )
    errors = [
        f"{setting} {spread([seed['nrmse']['scratch'] for seed in seeds])} from scratch, "
        f"{spread([seed['nrmse']['moved'] for seed in seeds])} transferred"
        for setting, seeds in settings.items()
    ]
    return [
        *lines,
        "",
        f"Test NRMSE at the end of both: {'; '.join(errors)}.",
        "",
        "![How much faster a transfer is](results/transfer.png)",
        "",
    ]


def draw(found: Found, folder: Path) -> None:
    """Writes transfer.png: every seed a point."""
    from matplotlib import pyplot

    settings = found["settings"]
    figure, axes = pyplot.subplots(
        1,
        len(settings),
        figsize=(5 * len(settings), 2.6),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, (setting, seeds) in zip(axes[0], settings.items(), strict=True):
        for place, clock in enumerate(CLOCKS):
            ratios = sorted(seed["faster"][clock] for seed in seeds)
            heights = [place + 0.3 * (number / max(1, len(ratios) - 1) - 0.5) for number in range(len(ratios))]
            axis.plot(ratios, heights, "o", color=COLOURS["driple"], alpha=0.5, markersize=4)
            axis.plot([statistics.median(ratios)] * 2, [place - 0.3, place + 0.3], color=COLOURS["trees"], linewidth=2)
        axis.axvline(found["wanted"], color="grey", linestyle=":")
        axis.set_xscale("log")
        axis.set_xticks([1, 3, 10, 30, 100, 300], ["1x", "3x", "10x", "30x", "100x", "300x"])
        axis.set_yticks(range(len(CLOCKS)), ["epochs", "+ base model", "+ grouping"])
        axis.set_title(setting)
        axis.set_xlabel(f"from scratch over transferred; dotted: {found['wanted']}x; bar: median")
    axes[0][0].invert_yaxis()  # of all: they share it
    figure.savefig(folder / "transfer.png", dpi=90, metadata={"Software": None})
    pyplot.close(figure)
