"""Tables of features that several contestants share: of a workload and its graph, and of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import PublishedGraph
from driple.inspector.data.workload_features import workload_feature_table
from driple.inspector.time.link_seconds import link_seconds as seconds_of_links
from driple.inspector.time.time_rows import TimeRow, step_times
from time_contest.contestant import Predict, Rows

ONE_MACHINE_MBIT = 100_000.0
"""Taken as the link rate where all tasks share a machine."""
_FURTHEST = 3.0
"""Standard deviations at which scaled features are cut off: nothing is known beyond the training rows."""

Table: TypeAlias = Callable[[Rows], FloatArray]
Model: TypeAlias = Callable[[FloatArray], FloatArray]
"""Features [n, F] to values [n]."""


def link_mbit(row: TimeRow) -> float:
    """Nominal rate of a link, or the limit that the run had."""
    nominal = row.setting.link_mbit or ONE_MACHINE_MBIT
    return float(min(nominal, row.example.workload.get("network_rate_mbit") or nominal))


def link_seconds(rows: Rows) -> FloatArray:
    """[n] seconds that the busiest link needs for the tensors of a step; 0 where the graph does not tell the bytes."""
    return np.nan_to_num(seconds_of_links([row.example for row in rows], [row.setting for row in rows]))


def graph_totals(rows: Rows) -> FloatArray:
    """[n, 4]: FLOPs, bytes of all tensors, ops, seconds of the busiest link."""
    found = []
    for row in rows:
        graph = row.example.graph
        if isinstance(graph, PublishedGraph):
            found.append([np.nan] * 3)
        else:
            found.append([np.nansum(graph.flops), graph.bytes.sum(), len(graph.ops)])
    return np.concatenate([np.array(found, dtype=np.float64).reshape(-1, 3), link_seconds(rows)[:, None]], axis=1)


def cluster_table(train: Rows) -> Table:
    """Workers, servers, link, strategy, seconds of the busiest link, and which of the training machines it is."""
    machines = sorted({row.machine for row in train})

    def table(rows: Rows) -> FloatArray:
        own = [
            [
                np.log(row.setting.workers),
                np.log1p(row.setting.servers),
                np.log(link_mbit(row)),
                *(float(row.machine == machine) for machine in machines),
            ]
            for row in rows
        ]
        known = np.array(own, dtype=np.float64).reshape(len(rows), -1)
        return np.concatenate([known, np.log(link_seconds(rows) + 1e-4)[:, None]], axis=1)

    return table


def all_features(train: Rows) -> Table:
    """Features of the workload, of its graph, and of the cluster."""
    cluster = cluster_table(train)
    return lambda rows: np.concatenate([workload_feature_table(row.example for row in rows), cluster(rows)], axis=1)


def total_features(train: Rows) -> Table:
    """Few numbers: batch size, update mode, four totals of the graph, the cluster."""
    cluster = cluster_table(train)

    def table(rows: Rows) -> FloatArray:
        options = [
            [np.log(row.example.workload["batch_size"]), float(row.example.workload["update"] == "async")]
            for row in rows
        ]
        totals = np.log(np.nan_to_num(graph_totals(rows)) + np.array([1e6, 1e3, 1.0, 1e-4]))
        return np.concatenate([np.array(options).reshape(-1, 2), totals, cluster(rows)], axis=1)

    return table


def standardised(table: Table, train: Rows) -> Table:
    """The table in standard deviations of the training rows; unknown values become their mean."""
    known = table(train)
    present = ~np.isnan(known)
    count = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, known, 0.0).sum(axis=0) / count
    deviation = np.sqrt((np.where(present, known - mean, 0.0) ** 2).sum(axis=0) / count)
    unit = np.where(deviation > 1e-9, deviation, np.inf)

    def scaled(rows: Rows) -> FloatArray:
        values = (table(rows) - mean) / unit
        return np.clip(np.nan_to_num(values), -_FURTHEST, _FURTHEST)

    return scaled


def regression(table: Table, train: Rows, fit: Callable[[FloatArray, FloatArray], Model]) -> Predict:
    """A predictor of the logarithm of the step, in standard deviations, from a scaled table.

    Args:
        table: of features.
        train: training rows.
        fit: from features [n, F] and values [n] to a function of features.
    """
    scaled = standardised(table, train)
    values = np.log(step_times(train))
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    model = fit(scaled(train), (values - mean) / deviation)
    return lambda rows: np.exp(model(scaled(rows)) * deviation + mean)
