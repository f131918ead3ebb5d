"""Importing the SSH modules changes no logger; only connecting does."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """if True:
    import logging, sys
    from driple.contracts.errors import HostLost
    from driple.orchestrator.hosts import connect, ssh
    from driple.orchestrator.hosts.route import Route

    log = logging.getLogger("paramiko")
    log.setLevel(int(sys.argv[1]))
    levels = [log.level]

    def refused():
        raise ConnectionRefusedError(111, "Connection refused")

    try:
        connect.dial(Route(name="h1", alias="h1", hostname="h1", user="u"), None, None, refused)
    except HostLost:
        levels.append(log.level)
    print(*levels)
"""


@pytest.mark.parametrize(("before", "after"), [(0, 50), (10, 10)])
def test_the_level_of_the_ssh_library_is_set_when_connecting(before: int, after: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(before)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(before), str(after)]


def test_importing_sets_no_level() -> None:
    program = "import logging, driple.orchestrator.hosts.ssh; print(logging.getLogger('paramiko').level)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]
