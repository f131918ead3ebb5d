"""Messages between the controller and a simulator process: one JSON object with one key per line.

controller  {"check": {"setting": "v100-p1w2-pcie", "topology": "ring"}}  before the first run
simulator   {"checked": {"setting": "v100-p1w2-pcie"}}
controller  {"simulate": {"job": "job.json", "folder": "DIR"}}           the folder has trace/, steps/, graph/, logs/
simulator   {"simulating": {"folder": "DIR", "share": 0.25}}             of a job that takes long, now and then
simulator   {"simulated": {"folder": "DIR", "steps": 8, ...}}
simulator   {"failed": {"folder": "DIR", "message": "...", "bad_input": true}}
"""

from __future__ import annotations

import json
from typing import Dict, Union

from driple.contracts.errors import BadInput, shown
from driple.contracts.protocol.message import Tagged, read_tagged


class Check(Tagged):
    """Say whether runs of a setting can be simulated."""

    setting: str
    topology: str
    """Of an all-reduce, else the strategy."""


class Checked(Tagged):
    """They can."""

    setting: str


class Simulate(Tagged):
    """Simulate a run."""

    job: str
    """File of the JobSpec."""
    folder: str
    """The run directory, without its manifest."""


class Simulating(Tagged):
    """A run is being simulated."""

    folder: str
    share: float
    """Of its computing that is done."""


class Simulated(Tagged):
    """The files of a run are complete."""

    folder: str
    steps: int
    """Of the first worker, with the step that counts as warm-up."""
    traffic_sources: Dict[str, str]
    """By task: as in the manifest."""
    versions: Dict[str, str]
    """Of the simulator, and hashes of its parameter files."""
    device_kind: str
    """Of the device file: `cpu` or `gpu`."""
    rate_mbit: float
    """Payload rate of a machine's link; 0 on one machine."""


class Failed(Tagged):
    """A run could not be simulated, or no run of a setting can be."""

    folder: str
    """Empty for a setting."""
    message: str
    bad_input: bool
    """The cause is the request, so another try fails too."""


MESSAGES = (Check, Checked, Simulate, Simulating, Simulated, Failed)


def read_line(line: Union[str, bytes]) -> Tagged:
    """Decodes a line. Raises BadInput if it is not a message."""
    try:
        message = read_tagged(MESSAGES, json.loads(line))
    except (BadInput, ValueError, RecursionError) as error:
        raise BadInput(f"expected a message of a simulator, got {shown(line)}: {error}") from None
    if message is None:
        raise BadInput(f"expected a message of a simulator, got {shown(line)}")
    return message
