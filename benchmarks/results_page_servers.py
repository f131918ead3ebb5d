"""The section about parameter servers of docs/benchmarks/results.md."""

from __future__ import annotations

import statistics

from results_text import Found, all_of, head, mean_of, percent, spread

from driple.contracts.metrics import COLUMNS

OURS = "driple"


def section(found: Found) -> list[str]:
    """Tables of every setting, best predictor first."""
    lines = [
        "## Parameter servers",
        "",
        "Inspectors of role `ps` (`driple-train --role ps`) learn from the rows of servers, with the graph of their",
        "workers. Split by architecture. NRMSE and MAPE in percent, means over all targets; then NRMSE / MAPE of each",
        "target of `driple`.",
        "",
    ]
    for setting, one in found.items():
        sides, predictors = one["rows"], one["predictors"]
        lines += [
            f"{setting}: {sides['train']} training, {sides['val']} validation and {sides['test']} test workloads; "
            f"{one['provenance']}; {len(predictors[OURS])} seeds.",
            "",
            *head("predictor", "NRMSE", "MAPE"),
        ]
        for name, rows in sorted(predictors.items(), key=lambda each: statistics.mean(all_of(each[1], "nrmse"))):
            lines.append(f"| {name} | {spread(all_of(rows, 'nrmse'))} | {spread(all_of(rows, 'mape'))} |")
        lines.append("")
    settings = list(found)
    lines += head("target", *settings)
    for column in COLUMNS:
        ours = [found[setting]["predictors"][OURS] for setting in settings]
        if any(mean_of(rows, "nrmse", column) for rows in ours):
            cells = (" / ".join(percent(mean_of(rows, score, column)) for score in ("nrmse", "mape")) for rows in ours)
            lines.append(f"| `{column}` | {' | '.join(cells)} |")
    return [*lines, ""]
