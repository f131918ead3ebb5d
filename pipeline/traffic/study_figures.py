"""Draws the figures of the published traffic study from the tables of study_tables.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing
from driple.pipeline.traffic.study_table import Row, StudyTable
from driple.pipeline.traffic.traffic_events import PIECE_S

FORMATS = ("svg", "png")
_MOST_PANELS = 6
_MOST_FLOWS = 60


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


def _volume(figure: Any, table: StudyTable) -> None:
    axis = figure.add_subplot()
    rows = _of(table, "model", "variant", "sent_gb")
    _bars(axis, rows, "GB sent")
    sizes = {model: mb for model, mb in _of(table, "model", "model_mb") if mb is not None}
    models = sorted({str(row[0]) for row in rows})
    line = axis.twinx()
    line.plot(range(len(models)), [sizes.get(model, np.nan) for model in models], "k.-", label="model")
    line.set_ylabel("MB of gradients")
    line.set_ylim(bottom=0)


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


def _matrices(figure: Any, table: StudyTable) -> None:
    panels = list(_grouped(_of(table, "job", "variant", "topology", "source", "destination", "bytes")).items())
    kinds: dict[Row, tuple[str, list[Row]]] = {}
    for job, rows in panels:
        kinds.setdefault(rows[0][:2], (job, rows))  # one job of each kind
    shown = list(kinds.items())[:_MOST_PANELS]
    axes = np.atleast_1d(figure.subplots(1, len(shown)))
    for axis, ((variant, topology), (_, rows)) in zip(axes.ravel(), shown, strict=True):
        tasks = sorted({task for row in rows for task in row[2:4]})
        values = np.zeros((len(tasks), len(tasks)))
        for _, _, source, destination, count in rows:
            values[tasks.index(source), tasks.index(destination)] = count / 1e6
        picture = axis.imshow(values, cmap="viridis", vmin=0)
        axis.set_xticks(range(len(tasks)), tasks, rotation=90, fontsize="x-small")
        axis.set_yticks(range(len(tasks)), tasks, fontsize="x-small")
        axis.set_title(f"{variant} {topology or ''}", fontsize="small")
        figure.colorbar(picture, ax=axis, shrink=0.6, label="MB")


def _counts(figure: Any, table: StudyTable) -> None:
    _bars(figure.add_subplot(), _of(table, "model", "variant", "flows"), "flows")


def _load(figure: Any, table: StudyTable) -> None:
    from matplotlib import colormaps

    job, rows = next(iter(_grouped(_of(table, *table.columns)).items()))
    axis = figure.add_subplot()
    flows = list(dict.fromkeys(row[:4] for row in rows))[:_MOST_FLOWS]
    greatest = max(row[5] for row in rows)
    colours = colormaps["viridis"]
    for *flow, start_s, count in rows:
        if tuple(flow) in flows:
            axis.barh(flows.index(tuple(flow)), PIECE_S, left=start_s, color=colours(count / greatest))
    axis.set_yticks(range(len(flows)), [f"{a}:{p} > {b}:{q}" for a, p, b, q in flows], fontsize="xx-small")
    axis.set_xlabel(f"s ({job})", fontsize="small")


def _pairs(figure: Any, table: StudyTable) -> None:
    shown = list(_grouped(_of(table, "job", "source", "destination", "t_ms", "mb_per_s")).items())[:_MOST_PANELS]
    axes = np.atleast_1d(figure.subplots(1, len(shown), sharey=True))
    for axis, (job, rows) in zip(axes.ravel(), shown, strict=True):
        for pair in dict.fromkeys(row[:2] for row in rows):
            own = [row for row in rows if row[:2] == pair]
            axis.step([row[2] for row in own], [row[3] for row in own], where="post", label=" > ".join(pair))
        axis.set_title(job[:40], fontsize="x-small")
        axis.set_xlabel("ms")
        axis.legend(fontsize="xx-small")
    axes.ravel()[0].set_ylabel("MB/s")


def _lines(
    x: str, y: str, *labels: str, x_label: str, y_label: str, step: bool = False
) -> Callable[[Any, StudyTable], None]:
    def draw(figure: Any, table: StudyTable) -> None:
        axis = figure.add_subplot()
        for label, rows in _grouped((row[:-2], *row[-2:]) for row in _of(table, *labels, x, y)).items():
            points = [(a, b) for a, b in rows if a is not None and b is not None]
            options: dict[str, Any] = {"drawstyle": "steps-post"} if step else {"marker": "."}
            axis.plot(*zip(*points, strict=True), label=" ".join(map(str, label)), **options)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        axis.legend(fontsize="x-small")

    return draw


def _cdf(figure: Any, table: StudyTable) -> None:
    axis = figure.add_subplot()
    for job, rows in list(_grouped(_of(table, "job", "bytes", "size_cdf")).items())[:_MOST_PANELS]:
        axis.step(*zip(*sorted(rows), strict=True), where="post", label=job[:60])
    axis.set_xscale("log")
    axis.set_xlabel("bytes of a flow")
    axis.set_ylabel("share of flows")
    axis.legend(fontsize="x-small")


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
    "fig9-batches": _lines(
        "t_ms", "mb_per_s", "variant", "model", "batch_size", x_label="ms", y_label="MB/s", step=True
    ),
    "fig10-loss": _lines(
        "loss_pct", "relative", "variant", "model", "topology", x_label="loss, %", y_label="relative duration"
    ),
}
