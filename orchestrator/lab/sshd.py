"""Keys and configuration of a host's sshd, and of ssh, scp, rsync and Ansible as its clients."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from driple.orchestrator.lab import linux_calls, tools
from driple.orchestrator.lab.layout import LabFiles, LabPlan, management_address
from driple.orchestrator.lab.mounts import make_folder

PORT = 22

_OPTIONS = """
AddressFamily inet
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
X11Forwarding no
Subsystem sftp internal-sftp
MaxStartups 1000
MaxSessions 1000
LoginGraceTime 30
LogLevel VERBOSE
"""
# OpenSSH 9.8 and later block an address after failed logins, and all connections come from one address.
_NEWER_OPTIONS = "PerSourcePenalties no\n"


def config(plan: LabPlan, files: LabFiles, name: str, newer: str = "") -> str:
    """The sshd_config of a host."""
    environment = {"HOME": str(files.home), "PATH": plan.path, "TMPDIR": str(files.home / "tmp")}
    return (
        f"ListenAddress {management_address(plan.number(name))}:{PORT}\n"
        f"HostKey {_quoted(str(files.host(name, 'host_key')))}\n"
        f"AuthorizedKeysFile {_path(files.key.with_suffix('.pub'))}\n"
        f"AllowUsers {plan.user}\n"
        f"SetEnv {' '.join(_quoted(f'{key}={value}') for key, value in environment.items())}\n" + _OPTIONS + newer
    )


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _path(path: Path) -> str:
    return _quoted(str(path).replace("%", "%%"))


def known_hosts(keys: Mapping[str, str]) -> str:
    """Every host with its public key."""
    return "".join(f"{name} {key}\n" for name, key in keys.items())


def client_config(plan: LabPlan, files: LabFiles, name: str) -> str:
    """The ssh_config for `ssh -F FILE lab1`. `driple-lab connect` opens the connection, passes it on and ends."""
    words = [sys.executable, "-m", "driple.orchestrator.cli_lab", "connect", "--name", name]
    proxy = shlex.join(words).replace("%", "%%") + " %h"
    return f"""Host {" ".join(plan.names)}
  User {plan.user}
  IdentityFile {_path(files.key)}
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {_path(files.known_hosts)}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
  ProxyCommand {proxy}
  ProxyUseFdpass yes
"""


def make_keys(plan: LabPlan, files: LabFiles) -> dict[str, str]:
    """Creates a key pair for logins and one for each host; returns the public keys of the hosts."""
    keys = {"": files.key} | {name: files.host(name, "host_key") for name in plan.names}
    program = tools.tool("ssh-keygen")
    started = []
    for name, path in keys.items():
        path.parent.mkdir(exist_ok=True)
        words = [program, "-q", "-t", "ed25519", "-N", "", "-C", name or "driple-lab", "-f", str(path)]
        started.append(
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        )
    for process in started:
        tools.finish(process)
    return {name: _public(keys[name]) for name in plan.names}


def _public(private: Path) -> str:
    kind, key = private.with_suffix(".pub").read_text().split()[:2]
    return f"{kind} {key}"


def configure(plan: LabPlan, files: LabFiles) -> None:
    """Writes the configuration of every host, with the options that this sshd accepts."""
    first = plan.names[0]
    probe = files.host(first, "sshd_config")
    newer = _NEWER_OPTIONS
    prepare = partial(linux_calls.switch_user, plan.uid, plan.gid) if plan.uid else None
    for _ in range(3):
        probe.write_text(config(plan, files, first, newer))
        try:
            tools.call([tools.tool("sshd"), "-t", "-f", str(probe)], prepare)
            break
        except tools.ToolError as failure:
            absent = re.search(r"Missing privilege separation directory: (/\S+)", str(failure))
            if absent:
                make_folder(Path(absent[1]))
            elif newer and "PerSourcePenalties" in str(failure):
                newer = ""
            else:
                raise tools.ToolError(f"sshd does not accept its configuration: {failure}") from None
    for name in plan.names:
        files.host(name, "sshd_config").write_text(config(plan, files, name, newer))
