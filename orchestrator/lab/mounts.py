"""Mounts: the hosts see the machine's file system, except for the few places that make each a host.

Every mount is in a namespace of the lab, and disappears with it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from driple.orchestrator.lab import linux_calls
from driple.orchestrator.lab.layout import LabFiles, LabPlan, data_address

_PLAIN = linux_calls.NO_SUID | linux_calls.NO_DEVICES


def mount_lab_files(plan: LabPlan, files: LabFiles) -> None:
    """Mounts the lab's own accounts and host names, once for all hosts."""
    files.home.mkdir()
    files.etc("").mkdir()
    # sshd starts a session in the home of the account, whatever HOME is. It must not be the machine's.
    entry = f"{plan.user}:x:{plan.uid}:{plan.gid}::{files.home}:{plan.shell}\n"
    accounts = Path("/etc/passwd").read_text(errors="surrogateescape")
    others = [line for line in accounts.splitlines(keepends=True) if not line.startswith(f"{plan.user}:")]
    _cover("passwd", files, entry + "".join(others))
    names = [f"{data_address(plan.number(name))} {name}\n" for name in plan.names]
    _cover("hosts", files, "127.0.0.1 localhost\n::1 localhost\n" + "".join(names))
    # Without PAM, sshd refuses an account whose password is locked, as root's is on many machines.
    _cover("shadow", files, f"{plan.user}:*:::::::\n")
    if plan.uid != 0:
        # sshd assigns a terminal to the group tty if it exists, which an ordinary user cannot do.
        groups = Path("/etc/group").read_text(errors="surrogateescape").splitlines(keepends=True)
        _cover("group", files, "".join(line for line in groups if not line.startswith("tty:")))


def _cover(name: str, files: LabFiles, text: str) -> None:
    own = files.etc(name)
    own.touch(mode=0o600)
    own.write_text(text, errors="surrogateescape")
    if name != "shadow":
        own.chmod(0o644)
    with suppress(FileNotFoundError):  # the machine has no such file
        linux_calls.mount(str(own), f"/etc/{name}", "", linux_calls.BIND)


def make_folder(folder: Path) -> None:
    """Creates a folder that is visible in the lab only: mounts a copy of its parent over the parent."""
    parent = folder.parent
    before = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        entries = list(os.scandir(f"/proc/self/fd/{before}"))
        linux_calls.mount("tmpfs", str(parent), "tmpfs", _PLAIN, "mode=755")
        for entry in entries:
            target = parent / entry.name
            with suppress(OSError):  # sshd does not need it
                if entry.is_symlink():
                    target.symlink_to(Path(entry.path).readlink())
                    continue
                if entry.is_dir():
                    target.mkdir()
                else:
                    target.touch()
                linux_calls.mount(entry.path, str(target), "", linux_calls.BIND | linux_calls.RECURSIVE)
    finally:
        os.close(before)
    folder.mkdir(mode=0o755)


def mount_host_files(plan: LabPlan, files: LabFiles) -> None:
    """Mounts a host's own /sys, home, shared memory and terminals."""
    # An old sysfs shows the interfaces of the namespace in which it was mounted. The new one hides the mounts
    # below; control groups are needed.
    groups = os.open("/sys/fs/cgroup", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    linux_calls.mount("sysfs", "/sys", "sysfs", _PLAIN | linux_calls.NO_EXEC)
    with suppress(OSError):
        linux_calls.mount(f"/proc/self/fd/{groups}", "/sys/fs/cgroup", "", linux_calls.BIND | linux_calls.RECURSIVE)
    os.close(groups)
    size = f"size={plan.disk_mb}m"
    linux_calls.mount("tmpfs", str(files.home), "tmpfs", _PLAIN, f"{size},mode=700")
    (files.home / "tmp").mkdir(mode=0o700)
    with suppress(FileNotFoundError):
        linux_calls.mount("tmpfs", "/dev/shm", "tmpfs", _PLAIN, f"{size},mode=1777")
    with suppress(OSError):  # a host without its own terminals still runs commands
        linux_calls.mount(
            "devpts", "/dev/pts", "devpts", linux_calls.NO_SUID | linux_calls.NO_EXEC, "newinstance,ptmxmode=0666"
        )


def mount_processes() -> None:
    """The /proc of the calling process's PID namespace."""
    linux_calls.mount("proc", "/proc", "proc", _PLAIN | linux_calls.NO_EXEC)
