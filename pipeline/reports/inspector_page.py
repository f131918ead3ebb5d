"""The report on inspectors: configuration, errors beside those of baselines, predictions and learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import SIMULATED, is_simulated, joined_provenance
from driple.contracts.formats.inspector import FILE
from driple.contracts.metrics import COLUMNS, RESOURCES, TARGETS
from driple.contracts.setting import CPU
from driple.pipeline.reports.charts import Point, bars, lines, scatter
from driple.pipeline.reports.html import EMPTY, Cell, Html, facts, join, table, tag
from driple.pipeline.reports.inspector_files import Files, Score, number, part, read_files, scores
from driple.pipeline.reports.measured_tables import target_title
from driple.pipeline.reports.number_text import UNKNOWN, amount, counted, duration, listed, percent, plain, with_unit
from driple.pipeline.reports.page_layout import Page, Report, Section, Watch

ITSELF = "inspector"
OVERALL = "all"
_WORST = 20
_LABELS = {OVERALL: "mean of all", **{resource.key: f"mean of {resource.key}" for resource in RESOURCES}}


def inspector_report(folders: Sequence[Path], root: Path, watch: Watch) -> Report:
    """One page; folders that cannot be read are listed on it. Raises BadInput if none can be read."""
    found: list[Files] = []
    broken: list[tuple[str, str]] = []
    for done, folder in enumerate(folders):
        watch("inspectors", done, len(folders))
        try:
            found.append(read_files(folder))
        except BadInput as error:
            if not found and done == len(folders) - 1:
                raise BadInput(str(error) if done == 0 else f"{root}: no inspector can be read; {error}") from None
            broken.append((folder.name, str(error).replace(f"{folder}/", "")))
    watch("inspectors", len(folders), len(folders))
    several = len(folders) > 1
    sections = [Section("Inspectors", _overview(found))] if several else []
    if broken:
        rows = [list(one) for one in broken]
        sections.append(Section("Set aside", table("Folders that cannot be used, and why", ["folder", "reason"], rows)))
    for files in found:
        sections += _sections(files, f"{files.folder.name}: " if several else "")
    about = {
        "kind": "inspector",
        "path": str(root),
        "set_aside": [{"folder": name, "reason": reason} for name, reason in broken],
        "inspectors": {files.folder.name: _facts(files) for files in found},
    }
    title = f"Inspectors in {root.resolve().name}" if several else f"Inspector of {found[0].name}"
    provenance = joined_provenance(str(files.about.get("provenance")) for files in found)
    notes = [note for files in found for note in _notes(files)]
    return Report(title, sections, about, notes=notes, provenance=provenance)


def _sections(files: Files, prefix: str) -> list[Section]:
    parts = [
        ("Overview", _about(files)),
        ("Errors", _errors(files)),
        ("Predictions", _predictions(files)),
        ("Learning curves", _curves(files)),
        ("Configuration", _configuration(files)),
        ("Provenance", _provenance(files)),
    ]
    return [Section(f"{prefix}{title}", body) for title, body in parts]


def _overview(found: Sequence[Files]) -> Html:
    rows = []
    for files in found:
        test = scores(files.report, "test")
        best = {name: number(of.get(OVERALL, {}).get("nrmse")) for name, of in test.items()}
        others = [value for name, value in best.items() if name != ITSELF and value is not None]
        own = best.get(ITSELF)
        rows.append(
            [
                files.folder.name,
                *(files.about.get(name) for name in ("role", "split", "provenance")),
                part(files.report, "workloads").get("test"),
                Cell(percent(own), own),
                Cell(percent(min(others, default=None)), min(others, default=None)),
                len(files.faults),
            ]
        )
    head = ["inspector", "role", "split", "rows are", "test workloads", "NRMSE", "best baseline", "faults"]
    return table("One folder for each setting and role; mean NRMSE of all targets on the test side", head, rows)


def _about(files: Files) -> Html:
    about, training = files.about, part(files.about, "training")
    own = scores(files.report, "test").get(ITSELF, {}).get(OVERALL, {})
    counts = part(files.report, "workloads")
    return facts(
        [
            *((name, about.get(name)) for name in ("setting", "role", "split")),
            ("rows are", about.get("provenance")),
            ("preset", part(about, "config").get("preset")),
            ("networks", about.get("networks")),
            ("workloads", ", ".join(f"{many} {side}" for side, many in counts.items()) or None),
            ("mean NRMSE, test", percent(number(own.get("nrmse"))) if own else None),
            ("mean MAPE, test", percent(number(own.get("mape"))) if own else None),
            ("trained in", duration(number(training.get("seconds"))) if "seconds" in training else None),
            ("best epochs", _text(training.get("best_epochs"))),
            ("transferred from", _text(about.get("transferred_from"))),
        ]
    )


def _errors(files: Files) -> Html:
    parts: list[object] = []
    for side in ("test", "val"):
        found = scores(files.report, side)
        if not found:
            continue
        found = {name: found[name] for name in sorted(found, key=lambda name: name != ITSELF)}
        tables = [
            _score_table(f"{title} on the {side} side", measure, found)
            for title, measure in (("NRMSE", "nrmse"), ("MAPE", "mape"), ("R2", "r2"))
        ]
        if side == "test":
            series = {
                name: [number(of.get(target, {}).get("nrmse")) for target in (*COLUMNS, OVERALL)]
                for name, of in found.items()
            }
            parts.append(bars("NRMSE on the test side", [*COLUMNS, "mean of all"], series, percent))
            parts.append(tag("div", *tables, class_="grid tables"))
        else:
            text = "The validation side: it selected this inspector, and baselines and base models were trained on it"
            parts.append(tag("details", tag("summary", text), *tables))
    if not parts:
        return tag("p", "No errors were written beside this inspector.")
    text = "The best of each line is bold. Baselines had the same rows. docs/guides/metrics.md defines the scores."
    return join([tag("p", text, class_="soft"), *parts])


def _score_table(caption: str, measure: str, found: Mapping[str, Mapping[str, Score]]) -> Html:
    rows = []
    for target in (*COLUMNS, *(resource.key for resource in RESOURCES), OVERALL):
        values = [number(of.get(target, {}).get(measure)) for of in found.values()]
        known = [value for value in values if value is not None]
        if not known:
            continue
        best = max(known) if measure == "r2" else min(known)
        label = _hundredths if measure == "r2" else percent
        cells = [Cell(label(v), v, strong=v is not None and v == best) for v in values]
        rows.append([_LABELS.get(target, target), *cells])
    return table(caption, ["target", *found], rows, sortable=True)


def _predictions(files: Files) -> Html:
    if not files.predictions:
        return tag("p", "No predictions were written beside this inspector.")
    cpu = str(files.about.get("setting")).partition("-")[0] == CPU
    pictures, worst = [], []
    for target in TARGETS:
        points = []
        for row in files.predictions:
            true, predicted = number(row.get("true")), number(row.get(ITSELF))
            if row.get("target") != target.column or true is None or predicted is None:
                continue
            name = _workload(row)
            label = f"{name}: true {amount(true, target.unit)}, predicted {amount(predicted, target.unit)}"
            points.append(Point(true, predicted, label, number(row.get("spread"))))
            if true > 0:
                worst.append((abs(predicted - true) / true, name, target, true, predicted))
        if points:
            title = target_title(target, cpu)
            pictures.append(scatter(title, points, with_unit(target.unit), "true", "predicted"))
    worst.sort(key=lambda one: -one[0])
    rows = [
        [name, target.column, amount(true, target.unit), amount(predicted, target.unit), Cell(percent(share), share)]
        for share, name, target, true, predicted in worst[:_WORST]
    ]
    head = ["workload", "target", "true", "predicted", "off by"]
    return join(
        [
            tag("p", "A point for each test workload; the prediction is exact on the dashed line.", class_="soft"),
            tag("div", *pictures, class_="grid"),
            table("The worst predictions, by share of the true value", head, rows, sortable=True),
        ]
    )


def _curves(files: Files) -> Html:
    if not files.curves:
        return tag("p", "No learning curves were kept (events/ and training/ are missing or empty).")
    best = part(files.about, "training").get("best_epochs")
    marks = [epoch for epoch in best if isinstance(epoch, int)] if isinstance(best, list) else []
    losses = [
        (colour, curve.values[name])
        for curve in files.curves
        for colour, name in ((0, "train_loss"), (2, "val_loss"))
        if name in curve.values
    ]
    errors = [(0, curve.values["val_nrmse"]) for curve in files.curves if "val_nrmse" in curve.values]
    pictures = [
        lines("loss: training blue, validation orange", losses, plain, "epoch"),
        lines("validation NRMSE; the point is the epoch that was kept", errors, percent, "epoch", marks),
    ]
    many = counted(len(files.curves), "network")
    return join([tag("p", f"Curves of {many}.", class_="soft"), tag("div", *pictures, class_="grid")])


def _configuration(files: Files) -> Html:
    config, features = part(files.about, "config"), part(files.about, "features")
    rows = [[name, _text(value)] for name, value in _flat(config)]
    names = features.get("names")
    columns = ", ".join(map(str, names)) if isinstance(names, list) else None
    return join(
        [
            table("Configuration", ["option", "value"], rows),
            tag("details", tag("summary", "Features of a node"), tag("p", columns)) if columns else EMPTY,
        ]
    )


def _provenance(files: Files) -> Html:
    about = files.about
    versions = part(about, "versions")
    return facts(
        [
            ("dataset, SHA-256", about.get("dataset_sha256")),
            ("rows are", about.get("provenance")),
            *((name, about.get(name)) for name in ("seed", "weights")),
            ("weights, SHA-256", about.get("weights_sha256")),
            ("versions", listed(f"{name} {value}" for name, value in versions.items())),
            ("schema version", about.get("schema_version")),
        ]
    )


def _notes(files: Files) -> list[str]:
    found = [f"{files.name}: {fault}." for fault in files.faults]
    provenance = files.about.get("provenance")
    if provenance == SIMULATED:
        found.append(f"{files.name}: trained and tested on simulated rows: these errors do not hold for real runs.")
    elif is_simulated(provenance):
        found.append(f"{files.name}: trained on {provenance} rows.")
    notes = files.report.get("notes")
    found += [f"{files.name}: {note}." for note in notes] if isinstance(notes, list) else []
    if part(files.about, "training").get("finished") is False:
        found.append(f"{files.name}: the training was stopped before its end.")
    test = {name: number(of.get(OVERALL, {}).get("nrmse")) for name, of in scores(files.report, "test").items()}
    own = test.get(ITSELF)
    better = [name for name, value in test.items() if own is not None and value is not None and value < own]
    if better:
        found.append(f"{files.name}: {' and '.join(better)} did better on the test side (mean NRMSE of all targets).")
    return found


def _facts(files: Files) -> dict[str, Any]:
    about = files.about
    return {
        **{name: about.get(name) for name in ("setting", "role", "split", "provenance", "dataset_sha256", "networks")},
        "workloads": dict(part(files.report, "workloads")),
        "faults": list(files.faults),
        "epochs": [max(map(len, curve.values.values())) for curve in files.curves],
        "nrmse": {
            name: {target: number(score.get("nrmse")) for target, score in of.items()}
            for name, of in scores(files.report, "test").items()
        },
    }


def _hundredths(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}" if abs(value) < 1000 else f"{value:.1e}"


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, item in value.items():
        flat += _flat(item, f"{prefix}{name}.") if isinstance(item, dict) else [(f"{prefix}{name}", item)]
    return flat


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)


def _workload(row: Mapping[str, str]) -> str:
    parts = [row.get("model"), row.get("update"), row.get("optimiser")]
    batch = f"b{row['batch_size']}" if row.get("batch_size") else None
    return " ".join(part for part in (parts[0], batch, *parts[1:]) if part) or str(row.get("run_ids"))


def _find(path: Path) -> Sequence[Path]:
    return [path] if (path / FILE).exists() else sorted(file.parent for file in path.glob(f"*/{FILE}"))


PAGE = Page(f"an inspector (a folder with {FILE}) or a folder of inspectors", _find, inspector_report)
