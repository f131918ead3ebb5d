from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab_rig import CLOCK_OFFSET_S, DISK_MB, HOSTS, Rig

from driple.orchestrator.hosts.agent_file import build_agent
from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    try:
        lab = Lab.start(hosts=HOSTS, disk_mb=DISK_MB, clock_offsets_s={"lab2": CLOCK_OFFSET_S})
    except LabUnavailableError as error:
        pytest.skip(f"no lab here: {error}")
    with lab:
        rig = Rig(lab, build_agent())
        try:
            yield rig
        finally:
            rig.close()
