"""docs/benchmarks/results.md and its pictures, from the figures that the parts kept."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import results_page_rows
import results_page_transfer
from results_text import COLOURS, Found, all_of, head, mean_of, percent, spread, within
from scipy.stats import spearmanr

from driple.contracts.metrics import COLUMNS
from driple.inspector.model.model_config import preset
from driple.inspector.predict.novelty import VERDICTS

MAIN = ("driple", "trees", "ridge", "paper", "mean")


def page(found: Found, causes: str) -> str:
    """The whole document; `causes` is what is believed of the weak figures, in words."""
    made = "\n".join(
        f"| {name} | {part['made']['date']} | {part['made']['minutes']} | {part['made']['machine']} |"
        for name, part in found.items()
    )
    parts = {name: part["figures"] for name, part in found.items()}
    return "\n".join(
        [
            "# Results",
            "",
            "What inspectors reach on the measured datasets ([how they were measured](../datasets/README.md)), beside "
            "plain baselines and the published recipe. NRMSE is the root mean square error over the range of the true "
            "values of the test rows, MAPE the mean relative error ([METRICS.md](METRICS.md)); both in percent, means "
            "over all targets, as workers see them, unless a target is named. ± is the deviation over seeds. Remade by "
            "`python benchmarks/results.py`; every single figure is in [results/](results).",
            "",
            *_short(parts),
            *_noise(parts["noise"]),
            *_accuracy(parts["accuracy"], parts["noise"], "recipe" in parts),
            *(_recipe(parts["recipe"], parts["accuracy"]) if "recipe" in parts else ()),
            *(_families(parts["families"]) if "families" in parts else ()),
            *_nearness(parts["accuracy"]),
            *(_design(parts["design"]) if "design" in parts else ()),
            *(results_page_rows.section(parts["rows"]) if "rows" in parts else ()),
            *(results_page_transfer.section(parts["transfer"]) if "transfer" in parts else ()),
            causes.strip(),
            "",
            "## When and where",
            "",
            *head("part", "made", "minutes", "on"),
            made,
            "",
        ]
    )


def _short(parts: Found) -> list[str]:
    lines = [
        "## In short",
        "",
        "NRMSE (MAPE) on families of models that were not trained on:",
        "",
        *head("setting", *MAIN, "the same run again"),
    ]
    for setting, splits in parts["accuracy"]["settings"].items():
        rows = splits["architecture"]["predictors"]
        cells = [f"{percent(all_of(rows[name], 'nrmse'))} ({percent(all_of(rows[name], 'mape'))})" for name in MAIN]
        again = _again(parts["noise"].get(setting, {}))
        lines.append(f"| {setting} | {' | '.join(cells)} | - ({percent(again['all'])}) |")
    return [*lines, "", "![errors](results/accuracy.png)", ""]


def _noise(found: Found) -> list[str]:
    lines = [
        "## The noise of the measurement",
        "",
        "The same run several times (experiments/lab-repeats.yaml): how far one run lies from the mean of the others, "
        "on average. No predictor can have a smaller MAPE on single runs.",
        "",
    ]
    for setting, workloads in found.items():
        names = list(workloads)
        lines += [
            f"{setting}, {within(each['runs'] for each in workloads.values())} runs of each:",
            "",
            *head("target", *names),
        ]
        for column in COLUMNS:
            cells = [percent(workloads[name]["distance"].get(column)) for name in names]
            if set(cells) != {"-"}:
                lines.append(f"| `{column}` | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _accuracy(found: Found, noise: Found, given_time: bool) -> list[str]:
    lines: list[str] = []
    for setting, splits in found["settings"].items():
        for split, one in splits.items():
            lines += _table(f"{setting}, split by {split}", one, _again(noise.get(setting, {})))
    return [
        *lines,
        f"The published recipe was stopped after {found['paper_epochs']} epochs here"
        f"{'; what it reaches when it ends by itself is below' if given_time else ''}. Times to its best validation "
        "error are over the time that it took itself to the epoch that had it, and over the time of all these epochs; "
        "the preparation of both is counted.",
        "",
    ]


def _reached(shares: Sequence[Found | None]) -> str:
    there = [share for share in shares if share is not None]
    if not there:
        return "never"
    to_best, whole = ([share[name] for share in there] for name in ("to_best", "whole"))
    return (
        f"with {len(there)} of {len(shares)} seeds, in {statistics.median(to_best):.3f} of its time to it "
        f"({within(to_best, 3)}), {statistics.median(whole):.3f} of its whole time ({within(whole, 3)})"
    )


def _table(title: str, one: Found, again: dict[str, float | None]) -> list[str]:
    sides, predictors = one["rows"], one["predictors"]
    lines = [
        f"## {title}",
        "",
        f"{sides['train']} workloads to train on, {sides['val']} to validate by, {sides['test']} to test; "
        f"{one['provenance']}; {len(predictors['driple'])} seeds.",
        "",
        *head("predictor", "NRMSE", "MAPE", "seconds to train"),
    ]
    for name, rows in sorted(predictors.items(), key=lambda each: statistics.mean(all_of(each[1], "nrmse"))):
        seconds = statistics.median(row["seconds"] for row in rows)
        lines.append(f"| {name} | {spread(all_of(rows, 'nrmse'))} | {spread(all_of(rows, 'mape'))} | {seconds:.1f} |")
    ours, theirs = (statistics.mean(all_of(predictors[name], "nrmse")) for name in ("driple", "paper"))
    lines += [
        "",
        f"`driple` reaches the best validation NRMSE of `paper` {_reached(one['share_of_papers_time'])}, and ends at "
        f"{ours / theirs:.2f} of its test NRMSE.",
        "",
        "NRMSE / MAPE of each target:",
        "",
        *head("target", *MAIN, "the same run again"),
    ]
    for column in COLUMNS:
        cells = [
            " / ".join(percent(mean_of(predictors[name], score, column)) for score in ("nrmse", "mape"))
            for name in MAIN
        ]
        if mean_of(predictors["driple"], "nrmse", column):
            lines.append(f"| `{column}` | {' | '.join(cells)} | {percent(again.get(column))} |")
    return [*lines, ""]


def _recipe(found: Found, accuracy: Found) -> list[str]:
    lines = [
        "## The published recipe, given time",
        "",
        "It ends a thousand epochs after its best one, by the loss of the validation rows (here after "
        f"{found['epochs']['scratch']} at the latest); one seed, split by architecture. Seconds are those of its "
        "epochs, each as long as the median of some that ran on a machine that did nothing else. How long `driple` "
        "(medians over seeds) took to its best validation NRMSE is over the time that it took itself to the epoch that "
        "had it; all preparation of `driple` counts, and none of the recipe's. Trainings are kept and gone on with, so "
        "the minutes at the end of this page are those of the last go alone.",
        "",
        *head(
            *("setting", "epochs", "best", "seconds", "NRMSE (MAPE)", "driple, of its NRMSE"),
            *("its best validation NRMSE", "driple's", "to it, of its time"),
        ),
    ]
    for setting, ways in found["settings"].items():
        own, ours = ways["scratch"], accuracy["settings"][setting]["architecture"]
        ratio = statistics.mean(all_of(ours["predictors"]["driple"], "nrmse")) / own["nrmse"]["all"]
        best = [curve[-1][1] for curve in ours["betterings"]]
        times = [
            next((seconds for seconds, error in curve if error <= own["val_nrmse"]), math.inf)
            for curve in ours["betterings"]
        ]
        share = statistics.median(times) / ((1 + own["val_nrmse_epoch"]) * own["seconds_of_an_epoch"])
        lines.append(
            f"| {setting} | {own['epochs']} | {own['best_epoch']} | {own['epochs'] * own['seconds_of_an_epoch']:.0f} | "
            f"{percent(own['nrmse']['all'])} ({percent(own['mape']['all'])}) | {ratio:.2f} | "
            f"{percent(own['val_nrmse'])} at epoch {own['val_nrmse_epoch']} | {percent(statistics.median(best))} | "
            f"{'never' if share == math.inf else f'{share:.4f}'} |"
        )
    lines += [
        "",
        f"Transferred from the one of {found['source']} at its best, for {found['epochs']['half']} epochs: `half` as "
        "the paper describes it, `mlp` as it was coded. `faster` is the time from scratch over that of the transfer, "
        "to the validation NRMSE that both reach.",
        "",
        *head(
            "setting",
            "tuned",
            "NRMSE (MAPE)",
            "validation NRMSE that both reach",
            "epochs from scratch",
            "epochs",
            "faster",
        ),
    ]
    for setting, ways in found["settings"].items():
        for way, one in ways.items():
            if "times_faster" in one:
                lines.append(
                    f"| {setting} | {way} | {percent(one['nrmse']['all'])} ({percent(one['mape']['all'])}) | "
                    f"{percent(one['equal'])} | {one['epochs_to_equal'][0]} | {one['epochs_to_equal'][1]} | "
                    f"{one['times_faster']:.1f}x |"
                )
    return [*lines, ""]


def _families(found: Found) -> list[str]:
    settings = found["settings"]
    one = next(iter(settings.values()))
    families = sum(map(len, one["folds"]))
    lines = [
        "## New families without a look at the test side",
        "",
        f"The {families} families of the training and validation sides, {one['rows']} workloads, take turns in "
        f"{len(one['folds'])} folds: each is predicted by inspectors that learned from the others "
        f"(benchmarks/results_families.py); NRMSE (MAPE) over all these predictions, means over "
        f"{len(one['predictors']['driple'])} seeds. `leash`: how far the network may go from the plain model, in "
        f"shares of its error; that of `driple` is {preset('driple').network.most_added:g}.",
        "",
        *head("predictor", *settings),
    ]
    for name in sorted(one["predictors"], key=lambda name: statistics.mean(all_of(one["predictors"][name], "nrmse"))):
        rows = [each["predictors"][name] for each in settings.values()]
        cells = [f"{percent(all_of(each, 'nrmse'))} ({percent(all_of(each, 'mape'))})" for each in rows]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _nearness(found: Found) -> list[str]:
    lines = [
        "## Does nearness say how good a prediction is?",
        "",
        "Test workloads of the architecture split by what `driple-predict` says of their distance from training data: "
        "how many, and by which factor a prediction is off (median over workloads, geometric mean over targets). Last, "
        "the rank correlation of distance and error.",
        "",
        *head("setting", *VERDICTS, "correlation"),
    ]
    for setting, splits in found["settings"].items():
        rows = splits["architecture"]["nearness"]
        cells = []
        for verdict in VERDICTS:
            errors = [row["error"] for row in rows if row["verdict"] == verdict]
            cells.append(f"{len(errors)}: {math.exp(statistics.median(errors)):.2f}x" if errors else "0")
        ranks = spearmanr([row["distance"] for row in rows], [row["error"] for row in rows]).statistic
        lines.append(f"| {setting} | {' | '.join(cells)} | {ranks:.2f} |")
    return [*lines, ""]


def _design(found: Found) -> list[str]:
    settings = found["settings"]
    seeds = len(next(iter(found["choices"]["layer"].values()))["nrmse"][0])
    lines = [
        "## The design study",
        "",
        "One choice of the network at a time made otherwise, without a plain model, split by architecture: NRMSE over "
        f"{seeds} seeds on {' and '.join(settings)}. What `driple` has is in bold. With 20 groups, log2N and sqrtN are "
        "the same depth.",
        "",
        *head("choice", "option", *settings),
    ]
    driple = preset("driple")
    network = driple.network
    ours = {
        "grouping": driple.grouping,
        "layer": network.layer,
        "GRU": network.gru,
        "K": network.depth,
        "readout": network.readout,
    }
    for choice, options in found["choices"].items():
        for option, one in options.items():
            shown = f"**{option}**" if ours[choice] == option else option
            cells = " | ".join(spread(errors) for errors in one["nrmse"])
            lines.append(f"| {choice} | {shown} | {cells} |")
    return [*lines, ""]


def draw(found: Found, folder: Path) -> None:
    """Writes the pictures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = found["accuracy"]["figures"]["settings"]
    figure, axes = pyplot.subplots(1, len(settings), figsize=(4 * len(settings), 3.2), layout="constrained")
    for axis, (setting, splits) in zip(axes, settings.items(), strict=True):
        for place, split in enumerate(splits):
            for number, name in enumerate(MAIN):
                values = [100 * value for value in all_of(splits[split]["predictors"][name], "nrmse")]
                axis.bar(
                    place + (number - 2) * 0.16,
                    statistics.mean(values),
                    0.15,
                    yerr=statistics.stdev(values) if len(values) > 1 else 0.0,
                    color=COLOURS[name],
                    label=name if place == 0 else None,
                )
        axis.set_xticks(range(len(splits)), [f"by {split}" for split in splits])
        axis.set_title(setting)
    axes[0].set_ylabel("NRMSE of the test rows, %")
    axes[-1].legend(frameon=False)
    figure.savefig(folder / "accuracy.png", dpi=90, metadata={"Software": None})
    pyplot.close(figure)
    for name, module in (("rows", results_page_rows), ("transfer", results_page_transfer)):
        if name in found:
            module.draw(found[name]["figures"], folder)


def _again(workloads: Found) -> dict[str, float | None]:
    """Of each target the mean distance of a run from its repetitions, over workloads; and of all targets."""
    found: dict[str, float | None] = {}
    for column in COLUMNS:
        known = [one["distance"][column] for one in workloads.values() if column in one["distance"]]
        found[column] = statistics.mean(known) if known else None
    known = [value for value in found.values() if value is not None]
    return {**found, "all": statistics.mean(known) if known else None}
