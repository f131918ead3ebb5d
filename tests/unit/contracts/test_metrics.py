from __future__ import annotations

from driple.contracts.formats.trace import TRACE_COLUMNS, column_of
from driple.contracts.metrics import COLUMNS, GPU, GPU_MEMORY, PUBLISHED_INDEX, RESOURCES, TARGETS


def test_the_first_twelve_targets_have_one_order_with_units_in_their_names() -> None:
    assert COLUMNS[:12] == (
        "gpu_burst_s", "gpu_idle_s", "gpu_burst_pct",
        "gpu_mem_burst_s", "gpu_mem_idle_s", "gpu_mem_burst_pct",
        "net_tx_burst_s", "net_tx_idle_s", "net_tx_burst_bytes_per_s",
        "net_rx_burst_s", "net_rx_idle_s", "net_rx_burst_bytes_per_s",
    )  # fmt: skip
    assert [target.unit for target in TARGETS[:12]] == ["s", "s", "%"] * 2 + ["s", "s", "B/s"] * 2


def test_published_labels_are_found_where_the_published_order_has_them() -> None:
    published = [
        f"{resource} {metric}"
        for resource in ("GPU memory utilisation", "GPU utilisation", "network RX", "network TX")
        for metric in ("idle", "burst", "amount")
    ]
    ours = [f"{target.resource.title} {target.metric.key}" for target in TARGETS if target.resource and target.metric]
    assert [published[index] for index in PUBLISHED_INDEX] == ours


def test_every_resource_has_a_trace_column_on_every_device() -> None:
    for resource in RESOURCES:
        assert column_of(resource, "v100") in TRACE_COLUMNS
        assert column_of(resource, "cpu") in TRACE_COLUMNS
    assert column_of(GPU, "cpu").name == "task_cpu_ns"
    assert column_of(GPU, "v100").name == "gpu_util_pct"
    # Resident memory is flat, and no stand-in for memory utilisation.
    assert column_of(GPU_MEMORY, "cpu").name == "task_mem_traffic_bytes"
