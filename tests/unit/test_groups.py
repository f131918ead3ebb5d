"""What `pytest -n` runs side by side: a file is never split, and integration tests that see each other never meet."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

FILES = ("tests/unit/contracts/test_setting.py", "tests/unit/contracts/test_command.py")
"""Quick ones."""


def test_all_tests_of_a_file_run_in_one_process(checkout: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "2", "-v", *FILES]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    processes = defaultdict(set)
    for process, file in re.findall(r"\[(gw\d)\] .*PASSED (\S+?)::", done.stdout):
        processes[file].add(process)
    assert set(processes) == set(FILES)
    assert processes[FILES[0]] != processes[FILES[1]] and all(len(own) == 1 for own in processes.values())
