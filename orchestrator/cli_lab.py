"""driple-lab: a cluster of network namespaces on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from driple.contracts.command import CommandParser, PartParser, command
from driple.contracts.errors import BadInput, shown


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code of the remote command for `exec`, else 0, 1 failed, 2 bad input."""
    arguments = _parser().parse_args(argv)
    run: int = arguments.run(arguments)
    return run


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="driple-lab",
        description="Create, show, enter and remove the lab: hosts in network namespaces on this machine, each with\n"
        "its own address, processes, home and sshd, on links of a given rate.",
        example="driple-lab up --hosts 4 --rate 1gbit",
    )
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART", parser_class=PartParser)
    up = parts.add_parser("up", help="create a lab that runs until it is removed")
    up.add_argument("--hosts", type=int, default=4, metavar="N", help="number of hosts (%(default)s)")
    up.add_argument("--rate", default="1gbit", help="rate of each data link, such as 100mbit; or none (%(default)s)")
    up.add_argument("--disk-mb", type=int, default=1024, metavar="N", help="size of a host's home (%(default)s)")
    up.set_defaults(run=_up)
    status = parts.add_parser("status", help="show the labs that are up")
    status.add_argument("--json", action="store_true", help="print JSON instead of a table")
    status.set_defaults(run=_status)
    enter = parts.add_parser("exec", help="run a command on a host, or a shell if none is given")
    enter.add_argument("host", metavar="HOST", help="lab1, lab2, ...")
    enter.add_argument("words", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="the command, passed on unchanged")
    enter.set_defaults(run=_exec)
    config = parts.add_parser("ssh-config", help="print the configuration for `ssh -F FILE lab1`")
    config.set_defaults(run=_ssh_config)
    connect = parts.add_parser("connect", help="pass a connection to ssh (as its ProxyCommand)")
    connect.add_argument("host", metavar="HOST")
    connect.set_defaults(run=_connect)
    down = parts.add_parser("down", help="remove a lab")
    down.set_defaults(run=_down)
    for part in (up, status, enter, config, connect, down):
        part.add_argument("--name", help="name of the lab, if there are several")
    return parser


def _up(arguments: argparse.Namespace) -> int:
    from driple.orchestrator.lab.lab_client import Lab

    size = {"hosts": arguments.hosts, "disk_mb": arguments.disk_mb}
    lab = Lab.start(**size, rate_mbit=_rate(arguments.rate), detached=True, name=arguments.name)
    print(_text(lab.name, lab.describe()))
    option = f" --name {lab.name}" if arguments.name else ""
    print(f"\nenter     driple-lab exec{option} lab1\nwith ssh  driple-lab ssh-config{option} > FILE; ssh -F FILE lab1")
    print(f"end       driple-lab down{option}")
    return 0


def _rate(text: str) -> float | None:
    if text == "none":
        return None
    from driple.contracts.quantity import ExpectedError
    from driple.orchestrator.config.validation import rate_mbit

    try:
        return rate_mbit(text)
    except ExpectedError as wanted:
        raise BadInput(f"driple-lab: error: --rate: expected {wanted}, or none, got {shown(text)}") from None


def _status(arguments: argparse.Namespace) -> int:
    import json

    from driple.orchestrator.lab.lab_client import Lab, living_labs

    names = [Lab.attach(arguments.name).name] if arguments.name else living_labs()
    labs = {name: Lab.attach(name).describe() for name in names}
    if arguments.json:
        print(json.dumps(labs))
    else:
        print("\n\n".join(_text(name, lab) for name, lab in labs.items()) or "no lab is up")
    return 0


def _text(name: str, described: Mapping[str, Any]) -> str:
    """A line about the lab and a table of its hosts."""
    from driple.orchestrator.planning.plan_text import table

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
    from driple.contracts.json_values import from_plain
    from driple.contracts.run_spec import NetworkCondition

    condition, how = from_plain(NetworkCondition, shape["condition"]), shape["how"]
    parts = [f"{condition.rate_mbit:g} Mbit/s" if how.get("rate") == "tbf" else "no limit of rate"]
    parts += [f"{part} {text}" for part, text in condition.parts.items() if part != "rate"]
    return "links of " + ", ".join(parts)


def _exec(arguments: argparse.Namespace) -> int:
    import shlex
    import subprocess

    from driple.orchestrator.lab import tools
    from driple.orchestrator.lab.lab_client import Lab

    lab = Lab.attach(arguments.name)
    lab.data_address(arguments.host)  # reports an unknown name before ssh starts
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else ["-T"]
    try:
        ssh = [tools.tool("ssh"), "-F", str(lab.ssh_config), *terminal, arguments.host]
    except tools.ToolError as absent:
        raise BadInput(f"driple-lab: error: {absent}") from None
    code = subprocess.call([*ssh, "--", shlex.join(words)] if words else ssh)
    return code if code >= 0 else 128 - code


def _ssh_config(arguments: argparse.Namespace) -> int:
    from driple.orchestrator.lab.lab_client import Lab

    print(Lab.attach(arguments.name).ssh_config.read_text(), end="")
    return 0


def _connect(arguments: argparse.Namespace) -> int:
    import socket

    from driple.orchestrator.lab.lab_client import Lab

    line = Lab.attach(arguments.name).connect(arguments.host)
    try:
        door = socket.socket(fileno=sys.stdout.fileno())
        socket.send_fds(door, [b"\0"], [line.fileno()])
    except OSError:
        raise BadInput("driple-lab: error: connect must be called by ssh with ProxyUseFdpass; see ssh-config") from None
    door.detach()
    return 0


def _down(arguments: argparse.Namespace) -> int:
    from driple.orchestrator.lab.lab_client import Lab

    lab = Lab.attach(arguments.name)
    lab.close()
    print(f"lab {lab.name!r} is down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
