"""Draws the figures of the published traffic study from the tables of study_tables.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing
from driple.pipeline.traffic.study_table import Row, StudyTable

FORMATS = ("svg", "png")
_MOST_LINES = 12
_MOST_FLOWS = 12
_ACROSS, _WIDTH = 3, 12.0
"""Panels side by side, and the width of the figure in inches."""


def write_figures(folder: Path, tables: Sequence[StudyTable], kind: str) -> list[Path]:
    """Writes a figure for every table that has one. Raises BadInput."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "driple"  # the same data give the same file
    from matplotlib import pyplot

    written = []
    for table in tables:
        draw = _FIGURES.get(table.name)
        if draw is None:
            continue
        figure = pyplot.figure(figsize=(9, 4.5), layout="constrained")
        try:
            draw(figure, table)
            figure.suptitle(table.heading)
            path = folder / f"{table.name}.{kind}"
            with replacing(path, "wb") as stream:
                undated = {"Date": None} if kind == "svg" else {"Software": None}
                figure.savefig(stream, format=kind, dpi=100, metadata=undated)
            written.append(path)
        except OSError as error:
            raise BadInput(f"{folder}: {error.strerror}") from None
        finally:
            pyplot.close(figure)
    return written


def _of(table: StudyTable, *columns: str) -> list[Row]:
    places = [table.columns.index(column) for column in columns]
    return [tuple(row[place] for place in places) for row in table.rows]


def _grouped(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    """Rows by their first value, without it."""
    found: dict[Any, list[Row]] = {}
    for first, *rest in rows:
        found.setdefault(first, []).append(tuple(rest))
    return found


def _several(groups: dict[Any, list[Row]], value: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """The groups with several values, which a figure compares; all groups if there is no such group."""
    return {key: rows for key, rows in groups.items() if len(set(map(value, rows))) > 1} or groups


def _volume(figure: Any, table: StudyTable) -> None:
    axis = figure.add_subplot()
    rows = _by_variant(table, "sent_gb")
    _bars(axis, rows, "GB sent")
    sizes = {model: mb for model, mb in _of(table, "model", "model_mb") if mb is not None}
    models = sorted({str(row[0]) for row in rows})
    line = axis.twinx()
    line.plot(range(len(models)), [sizes.get(model, np.nan) for model in models], "k.-", label="model")
    line.set_ylabel("MB of gradients")
    line.set_ylim(bottom=0)


def _by_variant(table: StudyTable, column: str) -> list[Row]:
    """Model, variant with its topology, and a value."""
    rows = _of(table, "model", "variant", "topology", column)
    return [(model, " ".join(filter(None, kind)), value) for model, *kind, value in rows]


def _bars(axis: Any, rows: Sequence[Row], label: str) -> None:
    """Mean value by model (groups) and variant (bars)."""
    models, variants = sorted({str(row[0]) for row in rows}), sorted({str(row[1]) for row in rows})
    width = 0.8 / len(variants)
    for number, variant in enumerate(variants):
        values = [[row[2] for row in rows if (str(row[0]), str(row[1])) == (model, variant)] for model in models]
        at = np.arange(len(models)) + (number - (len(variants) - 1) / 2) * width
        axis.bar(at, [float(np.mean(each)) if each else 0.0 for each in values], width, label=variant)
    axis.set_xticks(range(len(models)), models)
    axis.set_ylabel(label)
    axis.legend(fontsize="small")


def _panels(figure: Any, titles: Sequence[str], height: float, **options: Any) -> list[Any]:
    """Axes with titles, at most _ACROSS side by side."""
    across = min(len(titles), _ACROSS)
    down = -(-len(titles) // across)
    figure.set_size_inches(_WIDTH, height * down)
    axes: list[Any] = figure.subplots(down, across, squeeze=False, **options).ravel().tolist()
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(title, fontsize="small")
    for axis in axes[len(titles) :]:
        axis.set_visible(False)
    return axes[: len(titles)]


def _one_of_each_kind(table: StudyTable, *columns: str) -> dict[str, list[Row]]:
    """The rows of the first job of every variant and topology, under that name."""
    found: dict[str, list[Row]] = {}
    jobs: dict[str, Any] = {}
    for job, variant, topology, *rest in _of(table, "job", "variant", "topology", *columns):
        title = f"{variant} {topology or ''}".strip()
        if jobs.setdefault(title, job) == job:
            found.setdefault(title, []).append(tuple(rest))
    return found


def _matrices(figure: Any, table: StudyTable) -> None:
    shown = _one_of_each_kind(table, "source", "destination", "bytes")
    for axis, rows in zip(_panels(figure, list(shown), 2.7), shown.values(), strict=True):
        tasks = sorted({task for row in rows for task in row[:2]})
        values = np.zeros((len(tasks), len(tasks)))
        for source, destination, count in rows:
            values[tasks.index(source), tasks.index(destination)] = count / 1e6
        picture = axis.imshow(values, cmap="viridis", vmin=0)
        axis.set_xticks(range(len(tasks)), tasks, rotation=90, fontsize="x-small")
        axis.set_yticks(range(len(tasks)), tasks, fontsize="x-small")
        figure.colorbar(picture, ax=axis, label="MB to")


def _counts(figure: Any, table: StudyTable) -> None:
    _bars(figure.add_subplot(), _by_variant(table, "flows"), "flows")


def _load(figure: Any, table: StudyTable) -> None:
    from matplotlib import colormaps

    ends = ("source", "source_port", "destination", "destination_port")
    shown = _one_of_each_kind(table, *ends, "start_s", "piece_s", "bytes")
    colours = colormaps["viridis"]
    for axis, rows in zip(_panels(figure, list(shown), 3.2), shown.values(), strict=True):
        sizes: Counter[Row] = Counter()
        for *flow, _, _, count in rows:
            sizes[tuple(flow)] += count
        flows = [flow for flow, _ in sizes.most_common(_MOST_FLOWS)]
        greatest = max(row[-1] for row in rows)
        for *flow, start_s, piece_s, count in rows:
            if tuple(flow) in flows:
                at = flows.index(tuple(flow))
                axis.barh(at, piece_s, left=start_s, color=colours(np.log1p(count) / np.log1p(greatest)))
        names = [f"{source} > {destination}" for source, _, destination, _ in flows]
        axis.set_yticks(range(len(flows)), names, fontsize="xx-small")
        axis.invert_yaxis()
        axis.set_xlabel("s", fontsize="small")
    figure.supxlabel(f"The {_MOST_FLOWS} largest flows; the lighter, the more bytes (logarithmic)", fontsize="small")


def _pairs(figure: Any, table: StudyTable) -> None:
    shown = _one_of_each_kind(table, "source", "destination", "t_ms", "mb_per_s")
    axes = _panels(figure, list(shown), 2.7, sharey=True)
    for axis, rows in zip(axes, shown.values(), strict=True):
        for pair in dict.fromkeys(row[:2] for row in rows):
            own = [row for row in rows if row[:2] == pair]
            axis.step([row[2] for row in own], [row[3] for row in own], where="post", label=" > ".join(pair))
        axis.set_xlabel("ms")
        axis.set_ylabel("MB/s")
        axis.legend(fontsize=4, ncols=2)


def _lines(
    x: str, y: str, *labels: str, x_label: str, y_label: str, by_job: bool = True, step: bool = False
) -> Callable[[Any, StudyTable], None]:
    """A line for each job, or with `by_job` off for all jobs of a label. Jobs of a label have one colour."""

    def draw(figure: Any, table: StudyTable) -> None:
        axis = figure.add_subplot()
        rows = _of(table, *labels, *own, x, y)
        kinds = _several(_grouped((row[: len(labels)], *row[len(labels) :]) for row in rows), lambda row: row[-2])
        for number, (label, rows) in enumerate(kinds.items()):
            name: str | None = " ".join(str(part) for part in label if part is not None)
            for points in _grouped((row[:-2], *row[-2:]) for row in rows).values():
                known = [(a, b) for a, b in points if a is not None and b is not None]
                options: dict[str, Any] = {"drawstyle": "steps-post"} if step else {"marker": "."}
                if known:
                    axis.plot(*zip(*known, strict=True), color=f"C{number % 10}", label=name, **options)
                    name = None
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        figure.legend(fontsize="x-small", loc="outside right upper")

    own = ("job",) if by_job else ()
    return draw


def _batches(figure: Any, table: StudyTable) -> None:
    """A panel for each variant, model and topology, a line for each batch size: of the first job that has it."""
    panels = _grouped(
        (row[:3], *row[3:])
        for row in _of(table, "variant", "model", "topology", "batch_size", "job", "t_ms", "mb_per_s")
    )
    panels = _several(panels, lambda row: row[0])
    titles = [" ".join(str(part) for part in kind if part is not None) for kind in panels]
    for axis, rows in zip(_panels(figure, titles, 2.7, sharey=True), panels.values(), strict=True):
        for batch, points in sorted(_grouped(rows).items()):
            first = [(t_ms, rate) for job, t_ms, rate in points if job == points[0][0]]
            axis.step(*zip(*first, strict=True), where="post", label=f"batch size {batch}")
        axis.set_xlabel("ms")
        axis.set_ylabel("MB/s")
        axis.legend(fontsize="x-small")


def _cdf(figure: Any, table: StudyTable) -> None:
    axis = figure.add_subplot()
    for job, rows in list(_grouped(_of(table, "job", "bytes", "size_cdf")).items())[:_MOST_LINES]:
        axis.step(*zip(*sorted(rows), strict=True), where="post", label=job[:60])
    axis.set_xscale("log")
    axis.set_xlabel("bytes of a flow")
    axis.set_ylabel("share of flows")
    axis.legend(fontsize="x-small")


def _intervals(value: str, low: str, high: str, label: str, *names: str) -> Callable[[Any, StudyTable], None]:
    """A line for each row: its value with its interval. `names` are the columns that say what it is of."""

    def draw(figure: Any, table: StudyTable) -> None:
        rows = _of(table, value, low, high, *names)
        figure.set_size_inches(9, 1.2 + 0.22 * len(rows))
        axis = figure.add_subplot()
        for place, (middle, least, most) in enumerate(row[:3] for row in rows):
            axis.plot([least, most], [place, place], "-", color="C0")
            axis.plot([middle], [place], "o", color="C0", markersize=4)
            axis.annotate(f"{middle:.4g}", (most, place), xytext=(4, -3), textcoords="offset points", fontsize=6)
        texts = [" ".join(_told(name, part) for name, part in zip(names, row[3:], strict=True)) for row in rows]
        axis.set_yticks(range(len(rows)), texts, fontsize="x-small")
        axis.invert_yaxis()
        axis.axvline(0, color="grey", linewidth=0.5)
        axis.set_xlabel(label)

    return draw


def _told(name: str, value: Any) -> str:
    """A text as it is, a number with its name."""
    if isinstance(value, int | float):
        return f"{name.replace('_pct', ' %').replace('_', ' ')} {value:g}"
    return value or ""


_MEANS = ("mean_mbit", "low_mbit", "high_mbit", "Mbit/s")
_FIGURES: dict[str, Callable[[Any, StudyTable], None]] = {
    "flows": _cdf,
    "fig3-volume": _volume,
    "fig4-matrix": _matrices,
    "fig5-flows": _counts,
    "fig6-load": _load,
    "fig7-pairs": _pairs,
    "fig8-learning": _lines(
        "sent_gb", "value", "variant", "model", "batch_size", x_label="GB sent", y_label="accuracy or loss"
    ),
    "fig9-batches": _batches,
    "fig10-loss": _lines(
        *("loss_pct", "relative", "variant", "model", "topology", "batch_size", "congestion"),
        x_label="loss, %",
        y_label="relative duration",
        by_job=False,
    ),
    "table1-throughput": _intervals(*_MEANS, "model", "variant", "topology", "batch_size", "loss_pct"),
    "table2-throughput": _intervals(*_MEANS, "model", "framework", "backend", "topology", "batch_size", "loss_pct"),
    "regression": _intervals("value", "low", "high", "MB, per unit of the attribute", "coefficient"),
}
