"""The words of a network condition for netem, in the lab and on real hosts.

Not the rate: the lab limits it by tbf, in both directions.
"""

from __future__ import annotations

from driple.contracts.run_spec import NetworkCondition

WITHOUT_NETEM = {"rate": "tbf", "loss": "nft", "delay": "relay", "congestion": "route"}
"""Parts of a condition that the lab can make on a kernel without netem, and how."""


def netem_words(condition: NetworkCondition) -> list[str]:
    """Arguments of netem; empty if the condition needs none."""
    words = ["delay", f"{round(condition.delay_ms * 1000)}us"] if condition.delay_ms else []
    words += ["loss", "random", f"{condition.loss_pct:.6f}%"] if condition.loss_pct else []
    return words
