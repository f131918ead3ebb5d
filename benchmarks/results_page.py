"""docs/benchmarks/results.md and its pictures, from the figures that the parts kept."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import results_page_rows
import results_page_servers
import results_page_transfer
from results_text import COLOURS, Found, all_of, filled, head, mean_of, percent, spread, within
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
    return filled(
        [
            "# Results",
            "",
            "Accuracy of inspectors on the measured datasets (`datasets/README.md` describes the measurement), next to",
            "simple baselines and the published recipe. NRMSE is the root mean square error divided by the range "
            "of the",
            "true test values. MAPE is the mean relative error. Both are in percent, for the role `worker` unless it",
            "says `ps`, and means",
            "over all targets unless a target is named "
            "([definitions](../guides/metrics.md#how-predictions-are-scored)).",
            "± is the standard deviation over seeds. `python benchmarks/results.py` reproduces this page; the folder",
            "`docs/benchmarks/results/` holds every figure. In the tables, `plain model` is the base model.",
            "",
            *_short(parts),
            *_noise(parts["noise"]),
            *_accuracy(parts["accuracy"], parts["noise"], "recipe" in parts),
            *(results_page_servers.section(parts["servers"]) if "servers" in parts else ()),
            *(_recipe(parts["recipe"], parts["accuracy"]) if "recipe" in parts else ()),
            *(_families(parts["families"]) if "families" in parts else ()),
            *_nearness(parts["accuracy"]),
            *(_design(parts["design"]) if "design" in parts else ()),
            *(results_page_rows.section(parts["rows"]) if "rows" in parts else ()),
            *(results_page_transfer.section(parts["transfer"]) if "transfer" in parts else ()),
            causes.strip(),
            "",
            "## Date and machine",
            "",
            *head("part", "date", "minutes", "machine"),
            made,
            "",
        ]
    )


def _short(parts: Found) -> list[str]:
    lines = [
        "## Summary",
        "",
        "NRMSE (MAPE) on model families that were not in the training rows:",
        "",
        *head("setting", *MAIN, "repeated run"),
    ]
    for setting, splits in parts["accuracy"]["settings"].items():
        rows = splits["architecture"]["predictors"]
        cells = [f"{percent(all_of(rows[name], 'nrmse'))} ({percent(all_of(rows[name], 'mape'))})" for name in MAIN]
        again = _again(parts["noise"].get(setting, {}))
        lines.append(f"| {setting} | {' | '.join(cells)} | - ({percent(again['all'])}) |")
    return [*lines, "", "![errors](results/accuracy.png)", ""]


def _noise(found: Found) -> list[str]:
    lines = [
        "## Measurement noise",
        "",
        "The same run was repeated several times (experiments/lab-repeats.yaml). The tables show the mean distance of",
        "one run from the mean of the others, in percent. No predictor can have a smaller MAPE on single runs.",
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
        f"{'; the next section lets it stop by itself' if given_time else ''}.",
        "The time to its best validation error is given relative to the time that the recipe itself took to "
        "that epoch,",
        "and relative to the time of all its epochs. The preparation of both is included.",
        "",
    ]


def _reached(shares: Sequence[Found | None]) -> str:
    there = [share for share in shares if share is not None]
    if not there:
        return "never"
    to_best, whole = ([share[name] for share in there] for name in ("to_best", "whole"))
    return (
        f"with {len(there)} of {len(shares)} seeds, in {statistics.median(to_best):.3f} of its time to that error\n"
        f"({within(to_best, 3)}), {statistics.median(whole):.3f} of its total time ({within(whole, 3)})"
    )


def _table(title: str, one: Found, again: dict[str, float | None]) -> list[str]:
    sides, predictors = one["rows"], one["predictors"]
    lines = [
        f"## {title}",
        "",
        f"{sides['train']} training, {sides['val']} validation and {sides['test']} test workloads; "
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
        *head("target", *MAIN, "repeated run"),
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
        "## The published recipe without an epoch limit",
        "",
        "The recipe stops a thousand epochs after its best validation loss (here after "
        f"{found['epochs']['scratch']} at the latest).",
        "One seed, split by architecture. Seconds are those of its epochs, each as long as the median of "
        "some epochs on",
        "an otherwise idle machine. The last column is the time that `driple` (median over seeds) took to the recipe's",
        "best validation NRMSE, relative to the time that the recipe took to that epoch. All preparation of "
        "`driple` is",
        "included, none of the recipe's. Trainings are resumed, so the minutes at the end of this page are "
        "those of the",
        "last part only.",
        "",
        *head(
            *("setting", "epochs", "best", "seconds", "NRMSE (MAPE)", "driple's NRMSE, relative"),
            *("best validation NRMSE", "driple's", "driple's time to it, relative"),
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
        f"Transfer from the best epoch of {found['source']}, for {found['epochs']['half']} epochs: `half` as "
        "described in the paper,",
        "`mlp` as in the published code. `faster` is the time from scratch divided by that of the transfer, to the",
        "validation NRMSE that both reach.",
        "",
        *head(
            "setting",
            "trained part",
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
        "## New families, without the test side",
        "",
        f"Cross-validation over the {families} families of the training and validation sides, {one['rows']} workloads, "
        f"in {len(one['folds'])} folds:",
        "each family is predicted by inspectors trained on the others (benchmarks/results_families.py). "
        "NRMSE (MAPE) over",
        f"all predictions, means over {len(one['predictors']['driple'])} seeds. `leash` is the largest "
        f"allowed deviation "
        "of the network from the base model,",
        f"as a share of the base model's error; that of `driple` is {preset('driple').network.most_added:g}.",
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
        "## Does novelty predict the error?",
        "",
        "Test workloads of the architecture split, by the novelty verdict of `driple-predict`: their number, and the",
        "factor by which a prediction is off (median over workloads, geometric mean over targets). The last "
        "column is the",
        "rank correlation of distance and error.",
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
        "One choice of the network is changed at a time, without a base model, split by architecture: NRMSE over",
        f"{seeds} seeds on {' and '.join(settings)}. The choice of `driple` is in bold. With 20 groups, log2N and",
        "sqrtN are the same depth.",
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
