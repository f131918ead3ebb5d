"""A later release whose table has a fifth resource and a target without one. Run alone: it changes the table first.

python more_targets.py FOLDER     FOLDER/old has the inspector and dataset of today's table
"""

from __future__ import annotations

import sys
from pathlib import Path

from driple.contracts import metrics

DISK = metrics.Resource("disk", "disk", "B/s", "bytes_per_s", "disk_bytes", "disk_bytes")
STEP = metrics.Target("step_time_s", "s", "step time", metrics.DURATION)
TARGETS = (STEP, *metrics.TARGETS, *(metrics.burst_target(DISK, metric) for metric in metrics.METRICS))


def extend() -> None:
    metrics.RESOURCES += (DISK,)
    metrics.TARGETS = TARGETS
    metrics.COLUMNS = tuple(target.column for target in TARGETS)
    metrics.TARGET_OF_COLUMN = {target.column: target for target in TARGETS}


def main(folder: Path) -> None:
    extend()
    import inspector_work
    import predict_work
    import training_work

    from driple.inspector.predict.predict_workload import predict
    from driple.inspector.training.train_setting import evaluate_inspector, train

    setting, graph = inspector_work.SETTING, predict_work.run_graph(Path(__file__).resolve().parents[4])
    # An inspector and a dataset of the old table are used as they are.
    old = predict(graph=graph, setting=setting, inspectors=folder / "old/inspectors")[0]
    assert len(old.columns) == len(TARGETS) - 4 and "step_time_s" not in old.metrics
    judged = evaluate_inspector(setting, datasets=folder / "old/datasets", output=folder / "old/inspectors")
    assert judged.evaluation is not None and judged.evaluation.columns == old.columns
    # A new one learns the new targets; the dataset lacks the disk's idle time, which is null.
    dataset = inspector_work.zoo()
    for row in dataset.rows:
        if row["role"] == "worker":
            row["step_time_s"] = row["net_rx_burst_s"] + row["net_rx_idle_s"]
            row["disk_burst_s"], row["disk_burst_bytes_per_s"] = 2 * row["gpu_burst_s"], 1e6
    inspector_work.write(dataset, folder / "datasets")
    config = {"grouping": "uniform:4", "network.hidden": 6, "network.depth": 2, "training.epochs": 3}
    result = train(setting, datasets=folder / "datasets", output=folder / "inspectors", ensemble=2, config=config)
    assert result.inspector.columns == metrics.COLUMNS and len(metrics.COLUMNS) == len(TARGETS)
    found = predict(graph=graph, setting=setting, inspectors=folder / "inspectors")
    one = found[0].metrics
    assert (one["step_time_s"] or 0) > 0 and (one["disk_burst_s"] or 0) > 0 and one["disk_idle_s"] is None
    assert "step time" in str(found) and "disk" in str(found) and "step_time_s" in str(result)
    # A transfer from the old one keeps its targets.
    source = folder / "old/inspectors" / setting
    place = folder / "moved"
    moved = train(setting, datasets=folder / "datasets", output=place, transfer_from=source, epochs=2, ensemble=1)
    assert moved.inspector.columns == old.columns
    assert training_work.SMALL.ensemble == 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
