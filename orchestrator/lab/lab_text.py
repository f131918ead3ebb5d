"""A lab as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driple.orchestrator.planning.plan_text import table


def text(name: str, described: Mapping[str, Any]) -> str:
    """A line about the lab and a table of its hosts."""
    plan, hosts = described["plan"], described["hosts"]
    end = "until it is taken down" if plan["detached"] else "as long as its owner"
    head = f"lab {name!r}: {len(hosts)} hosts of user {plan['user']}, {_links(described['shape'])}, up {end}"
    rows = [
        (
            each,
            "up" if host["up"] else "down",
            host["data_address"] + ("" if host["links"]["data"] else " (cut)"),
            host["management_address"] + ("" if host["links"]["mgmt"] else " (cut)"),
            f"{plan['disk_mb']} MB",
        )
        for each, host in hosts.items()
    ]
    return head + "\n" + table(("host", "state", "eth0 (data)", "mgmt0", "home"), rows)


def _links(shape: Mapping[str, Any]) -> str:
    condition, how = shape["condition"], shape["how"]
    parts = [f"{condition['rate_mbit']:g} Mbit/s" if how.get("rate") == "tbf" else "no limit of rate"]
    parts += [f"{condition['delay_ms']:g} ms"] if condition["delay_ms"] else []
    parts += [f"{condition['loss_pct']:g} % lost"] if condition["loss_pct"] else []
    return "links of " + ", ".join(parts)
