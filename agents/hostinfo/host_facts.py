"""Facts about the host that an agent reports when it is ready."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Optional, Sequence

from driple.agents.daemon.journal import boot_id
from driple.agents.daemon.work_dir import WorkDir
from driple.contracts.protocol.events import Ready


def host_facts(work: WorkDir, ended_left: Sequence[str]) -> Ready:
    """The event that reports them."""
    about = os.uname()
    return Ready(
        pid=os.getpid(),
        uid=os.getuid(),
        gid=os.getgid(),
        ssh_address=_ssh_address(),
        python=".".join(map(str, sys.version_info[:3])),
        executable=sys.executable,
        hostname=about.nodename,
        kernel=about.release,
        boot_id=boot_id(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=_memory_bytes(),
        work=str(work.path),
        disk_free_bytes=work.free_bytes,
        mono_ns=time.monotonic_ns(),
        real_ns=time.time_ns(),
        ended_left=tuple(ended_left),
    )


def _ssh_address() -> Optional[str]:
    """This host's address on the SSH connection that started the agent; None without SSH."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else None


def _memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0
