"""The page docs/benchmarks/training-time.md, from its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from results_text import filled, head

from time_contest.figures import ALL, Figures
from time_contest.folds import ANCHORS, DRAWS
from time_contest.job_runs import MOST_RUNS, STEPS_OF_A_RUN
from time_contest.registry import OURS
from time_contest.targets import verdicts

TITLES = {
    "architecture": ("Architecture split", "The families of the test side are new."),
    "family": ("Leave one family out", "Each family of models in turn is new; everything else is learned from."),
    "model": ("Leave one model out", "Each model in turn is new; others of its family may be known."),
    **{
        f"setting {count}": (
            f"Leave one setting out, {count} anchor rows",
            "Other settings of the same machine are known, and so are the workloads there."
            + (f" Means over {DRAWS} draws of the anchors." if count else ""),
        )
        for count in ANCHORS
    },
    "machine 0": ("New machine, nothing of it known", "The machine and its settings are new."),
    "machine 1": (
        "New machine, one chosen anchor run for each setting",
        "The anchor has the most FLOPs for its communication.",
    ),
    "random": ("Random split", "The same architecture with another batch size may be known."),
}
"""In the order of the page."""

_PUBLISHED = (
    ("dPRO (MLSys 2022)", "a trace of the job", "below 5"),
    ("PerfSeer", "no", "5.1 to 7.8"),
    ("DNNPerf (ICSE SEIP 2023)", "no", "7.4"),
    ("vTrain (MICRO 2024)", "profiles of its ops", "8.4 to 14.7"),
    ("Habitat (USENIX ATC 2021)", "a profile on another GPU", "11.8"),
    ("PredictDDL (CLUSTER 2023)", "no", "up to 9.8 times less than Ernest"),
)
"""Figures of publications on measurements of their own, in percent."""


def page(figures: Figures) -> str:
    """The whole page."""
    parts = [_introduction(figures), _targets(figures), _related(figures)]
    parts += [_part(figures, part) for part in TITLES if part in figures["parts"]]
    parts += [_sample_runs(figures), _search(figures), _published()]
    return filled([part for part in parts if part]) + "\n"


def _introduction(figures: Figures) -> str:
    made = figures["made"]
    places = figures["places"]
    lines = [f"{name}: {facts['rows']} rows, machine {facts['machine']}" for name, facts in places.items()]
    rows = sum(facts["rows"] for facts in places.values())
    return "\n".join(
        [
            "# Training time: predictors on our rows",
            "",
            f"{len(figures['contestants'])} predictors of the time of a training step, on the same {rows} measured rows"
            f" and folds: {figures['models']} models of {figures['families']} families. The"
            " [protocol](training-time-protocol.md) was written before the final run; it defines folds, errors and"
            " targets.",
            "",
            f"{made['date']}; {made['machine']}. Reproduce with"
            " `python benchmarks/time_results.py --write docs/benchmarks/training-time.md`, which also writes"
            " `benchmarks/data/training-time.json`.",
            "",
            "Settings of the rows:",
            "",
            *(f"- {line}" for line in lines),
            "",
            "A cell is MAPE / median error in percent of the measured step, with a 95 % bootstrap interval of the MAPE"
            " over families. `n of m` are the rows with a prediction where some have none. The noise floor is the error"
            " of one run as a prediction of the mean of its repetitions.",
            "",
        ]
    )


def _targets(figures: Figures) -> str:
    found = verdicts(figures)
    if not found:
        return ""
    lines = [
        f"| {one.what} | {one.target} | {one.found} | {'reached' if one.reached else 'NOT reached'} |" for one in found
    ]
    count = sum(one.reached for one in found)
    return "\n".join(
        [f"## Targets\n\n{count} of {len(found)} are reached.\n", *head("what", "target", "found", ""), *lines, ""]
    )


def _part(figures: Figures, part: str) -> str:
    title, about = TITLES[part]
    results = figures["parts"][part]
    places = [place for place in figures["places"] if any(place in found for found in results.values())]
    lines = [f"## {title}", "", about, "", *head("predictor", *places, "mean of settings")]
    lines.append(_row("noise floor", [*(_noise(figures["places"][place]) for place in places), ""]))
    for name in _ranked(results):
        cells = [_cell(results[name].get(place)) for place in places]
        own = figures["contestants"][name]
        title = f"**{own['title']}**" if name == OURS else own["title"]
        lines.append(_row(title, [*cells, _over_settings(results[name])]))
    return "\n".join([*lines, ""])


def _related(figures: Figures) -> str:
    """The methods side by side."""
    architecture, family = (figures["parts"].get(part, {}) for part in ("architecture", "family"))
    if OURS not in family:
        return ""
    lines = [
        "## Methods side by side",
        "",
        "Errors are means over the settings, and their ratio to ours is over the settings where both predict. Time to"
        " answer is that of one workload with its graph in memory and a trained model."
        f" Sample runs have {STEPS_OF_A_RUN} steps and are counted in seconds of all hosts, without"
        " their start.",
        "",
        *head(
            *("method", "source", "needs runs of the job", "architecture split", "leave one family out"),
            *("error / ours", "time to answer"),
        ),
        _row("noise floor", ["", "", _mean_noise(figures), _mean_noise(figures), "", ""]),
    ]
    for name in _ranked(family):
        own = figures["contestants"][name]
        cells = [own["source"], _need(figures, name), _over_settings(architecture.get(name, {}))]
        cells += [_over_settings(family[name]), f"{_ratio(family, name):.1f}", _time(figures, name)]
        lines.append(_row(own["title"], cells))
    return "\n".join([*lines, ""])


def _ranked(results: dict[str, Any]) -> list[str]:
    """Contestants by their error relative to ours, on the settings where both predict."""
    return sorted((name for name in results if ALL in results[name]), key=lambda name: _ratio(results, name))


def _ratio(results: dict[str, Any], name: str) -> float:
    """Mean error over ours, on the settings where both predict; without ours, the mean error."""
    ours, theirs = ({place: error for place, error in results.get(one, {}).items() if error} for one in (OURS, name))
    common = [place for place in theirs if place in ours and place != ALL]
    if not common:
        return float(theirs[ALL]["mape"])
    return float(sum(theirs[place]["mape"] for place in common) / sum(ours[place]["mape"] for place in common))


def _over_settings(results: dict[str, Any]) -> str:
    """The mean over settings, and how many of them if there is no prediction on some."""
    known = [error for place, error in results.items() if error and place != ALL]
    every = len(results) - 1
    text = _short(results.get(ALL))
    return text if not known or len(known) == every else f"{text}, {len(known)} of {every}"


def _need(figures: Figures, name: str) -> str:
    used = figures["samples"].get("family", {}).get(name)
    return "no" if used is None else f"{used['runs']:.1f} runs, {used['machine_s']:.0f} machine s"


def _time(figures: Figures, name: str) -> str:
    seconds = figures.get("answers", {}).get(name)
    if seconds is None:
        return "-"
    text = f"{1e3 * seconds:.2g} ms" if seconds < 0.1 else f"{seconds:.2g} s"
    return f"the runs and {text}" if figures["contestants"][name]["needs_runs"] else text


def _sample_runs(figures: Figures) -> str:
    parts = {part: found for part, found in figures["samples"].items() if part in TITLES}
    if not parts:
        return ""
    lines = [
        "## Sample runs",
        "",
        f"What methods that need runs of the very job used for each answer: at most {MOST_RUNS} runs.",
        "",
        *head("method", "folds", "runs", "machine seconds"),
    ]
    for part in TITLES:
        for name, used in parts.get(part, {}).items():
            title = figures["contestants"][name]["title"]
            lines.append(_row(title, [TITLES[part][0], f"{used['runs']:.1f}", f"{used['machine_s']:.0f}"]))
    return "\n".join([*lines, ""])


def _search(figures: Figures) -> str:
    if not figures.get("search"):
        return ""
    jobs, configurations, ways = (figures["search"][name] for name in ("jobs", "configurations", "ways"))
    lines = [
        "## CherryPick's search",
        "",
        f"{jobs} jobs with {configurations:.1f} measured configurations (batch size and setting) on average. The"
        " cheapest has the fewest machine seconds per example. CherryPick runs three configurations, then that with the"
        " greatest expected improvement, until this is below 10 %; as published it also runs at least six.",
        "",
        *head("way to choose", "runs of the job", "machine seconds", "cost above the cheapest, %"),
    ]
    for title, runs, machine_s, regret_pct in ways:
        lines.append(_row(title, [f"{runs:.1f}", f"{machine_s:.0f}", f"{regret_pct:.1f}"]))
    return "\n".join([*lines, ""])


def _published() -> str:
    lines = [
        "## Published errors",
        "",
        "Each is on measurements and a protocol of its own: not part of the contest.",
        "",
        *head("predictor", "needs a run of the job", "error, %"),
        *(_row(name, [need, error]) for name, need, error in _PUBLISHED),
    ]
    return "\n".join(lines)


def _row(name: str, cells: Iterable[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def _cell(error: dict[str, Any] | None) -> str:
    if error is None:
        return "-"
    text = _short(error)
    if error["low"] is not None:
        text += f" ({_number(error['low'])}-{_number(error['high'])})"
    return text if error["predicted"] == error["rows"] else f"{text}, {error['predicted']} of {error['rows']}"


def _short(error: dict[str, Any] | None) -> str:
    return "-" if not error else f"{_number(error['mape'])} / {_number(error['median'])}"


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _noise(facts: dict[str, Any]) -> str:
    return "not repeated" if facts["noise"] is None else f"{facts['noise']:.1f} ({facts['repeated']} rows)"


def _mean_noise(figures: Figures) -> str:
    known: Sequence[float] = [one["noise"] for one in figures["places"].values() if one["noise"] is not None]
    return f"{sum(known) / len(known):.1f}" if known else "not repeated"
