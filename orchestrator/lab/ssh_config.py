"""ssh_config and known_hosts of a lab, for `ssh -F FILE lab1`, scp, rsync and Ansible."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

from driple.orchestrator.lab.layout import LabFiles, LabPlan


def known_hosts(keys: Mapping[str, str]) -> str:
    """Every host with its public key."""
    return "".join(f"{name} {key}\n" for name, key in keys.items())


def text(plan: LabPlan, files: LabFiles, name: str) -> str:
    """The ssh_config. `driple-lab connect` opens the connection, passes it on and ends (ProxyUseFdpass)."""
    words = [sys.executable, "-m", "driple.orchestrator.cli_lab", "connect", "--name", name]
    proxy = shlex.join(words).replace("%", "%%") + " %h"
    return f"""Host {" ".join(plan.names)}
  User {plan.user}
  IdentityFile {_quoted(files.key)}
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {_quoted(files.known_hosts)}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
  ProxyCommand {proxy}
  ProxyUseFdpass yes
"""


def _quoted(path: object) -> str:
    return '"' + str(path).replace("%", "%%") + '"'
