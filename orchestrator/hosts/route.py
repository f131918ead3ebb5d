"""The route to a host: from the inventory first, then from ~/.ssh/config as OpenSSH reads it."""

from __future__ import annotations

import getpass
import glob
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import HostLost, HostRefused
from driple.orchestrator.config.inventory import HostSpec

CONNECT_LIMIT_S = 10.0
_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_READ_LIMIT_S = 20.0  # Match exec and CanonicalizeHostname may take their time


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for all hosts."""

    config_file: Path
    known_hosts: Sequence[Path] | None = None  # instead of the files of the configuration
    accept_new: bool = False
    connect_timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Route:
    """A resolved host. Its text form is used in messages."""

    name: str
    alias: str
    hostname: str
    user: str
    port: int = 22
    identity_files: Sequence[Path] = ()  # in order of preference; missing files are skipped
    identities_only: bool = False
    agent: str = "SSH_AUTH_SOCK"  # as IdentityAgent: a socket, a name of an environment variable, or none
    known_hosts: Sequence[Path] = ()
    key_name: str = ""  # the host's name in known_hosts
    accept_new: bool = False
    hash_names: bool = False
    timeout_s: float = CONNECT_LIMIT_S
    jump: Callable[[], Route] | None = None
    depth: int = 0  # number of jumps from the requested host
    proxy_command: str | None = None
    proxy_passes_socket: bool = False  # ProxyUseFdpass: the command passes a connected socket and ends

    @property
    def by_hand(self) -> str:
        """Arguments of ssh or ssh-copy-id for this host."""
        port = f"-p {self.port} " if self.port != 22 else ""
        return f"{port}{self.user}@{self.alias}"

    def __str__(self) -> str:
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{self.name} ({self.user}@{host}:{self.port})"


def direct_route(spec: HostSpec, options: Options) -> Route:
    """The route of a host whose sockets the caller provides. Ignores the configuration."""
    return Route(
        name=spec.name,
        alias=spec.address,
        hostname=spec.address,
        user=spec.user or getpass.getuser(),
        port=spec.port or 22,
        identity_files=_files([spec.identity_file] if spec.identity_file else [], {}),
        identities_only=spec.identity_file is not None,
        timeout_s=options.connect_timeout_s or CONNECT_LIMIT_S,
    )


def find_route(spec: HostSpec, options: Options, *, jumps: str | None = None, depth: int = 0) -> Route:
    """Resolves a host; the inventory takes precedence over the configuration. Raises HostRefused if that is unreadable.

    `jumps` replaces ProxyJump of the configuration; `depth` is the number of jumps so far.
    """
    config = _config(spec, options)
    hostname, user, port = _one(config, "hostname"), _one(config, "user"), int(_one(config, "port", "22"))
    machine, alias = socket.gethostname(), _one(config, "hostkeyalias", spec.address)
    tokens = {
        "%": "%", "d": str(Path.home()), "h": hostname, "i": str(os.getuid()), "k": alias,
        "L": machine.split(".")[0], "l": machine, "n": spec.address, "p": str(port), "r": user, "u": getpass.getuser(),
    }  # fmt: skip
    key_name = _one(config, "hostkeyalias", hostname if port == 22 else f"[{hostname}]:{port}")
    known = options.known_hosts
    if known is None:
        default = str(_default_known_hosts())
        user_files = _one(config, "userknownhostsfile", default)
        names = [user_files] if user_files == default else user_files.split()
        known = _files([*names, *_one(config, "globalknownhostsfile", "").split()], tokens)
    limit = _one(config, "connecttimeout", "none")
    hops = [hop for hop in (jumps or _one(config, "proxyjump", "none")).split(",") if hop != "none"]
    command = _one(config, "proxycommand", "none")
    return Route(
        name=spec.name,
        alias=spec.address,
        hostname=hostname,
        user=user,
        port=port,
        identity_files=_files([spec.identity_file] if spec.identity_file else config.get("identityfile", []), tokens),
        identities_only=spec.identity_file is not None or _one(config, "identitiesonly", "no") == "yes",
        agent=_expand(_one(config, "identityagent", "SSH_AUTH_SOCK"), tokens),
        known_hosts=known,
        key_name=key_name.lower(),
        # In OpenSSH `no` also accepts a changed key; here only new ones.
        accept_new=options.accept_new
        or _one(config, "stricthostkeychecking", "ask") in ("accept-new", "no", "off", "false"),
        hash_names=_one(config, "hashknownhosts", "no") == "yes",
        timeout_s=options.connect_timeout_s or (CONNECT_LIMIT_S if limit == "none" else float(limit)),
        jump=(lambda: _jump(spec, options, hops, depth)) if hops else None,
        depth=depth,
        proxy_command=None if hops or command == "none" else _expand(command, tokens),
        proxy_passes_socket=_one(config, "proxyusefdpass", "no") == "yes",
    )


def _jump(spec: HostSpec, options: Options, hops: Sequence[str], depth: int) -> Route:
    """The last jump host of a list, which is reached through those before it."""
    hop = re.fullmatch(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^]]+\]|[^:/]+)(?::(?P<port>\d+))?/?", hops[-1])
    if hop is None or hop["host"].startswith("-"):
        raise HostRefused(f"{spec.name}: ProxyJump {hops[-1]!r} is not valid; expected [user@]host[:port]")
    host = hop["host"].strip("[]")
    port = int(hop["port"]) if hop["port"] else None
    jump = HostSpec(name=f"{spec.name} via {host}", address=host, user=hop["user"], port=port)
    return find_route(jump, options, jumps=",".join(hops[:-1]) or None, depth=depth + 1)


def _default_known_hosts() -> Path:
    return Path.home() / ".ssh" / "known_hosts"


def _config(spec: HostSpec, options: Options) -> Mapping[str, list[str]]:
    """The values of every key from `ssh -G`: paramiko's reader lacks Include and some of Match."""
    ours = {"hostname": [spec.address], "user": [spec.user or getpass.getuser()], "port": [str(spec.port or 22)]}
    ssh = shutil.which("ssh")
    if ssh is None:
        if options.config_file.exists():
            raise HostRefused(
                f"{spec.name}: {options.config_file} needs the ssh program to be read; install openssh-client"
            )
        defaults = [f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa")]
        return {**ours, "identityfile": defaults, "globalknownhostsfile": ["/etc/ssh/ssh_known_hosts"]}
    # ssh takes the home from the password database; the rest of this program uses HOME.
    text = (
        f'Include "{glob.escape(str(options.config_file))}"\nMatch all\nInclude {_SYSTEM_CONFIG}\nMatch all\n'
        f'UserKnownHostsFile "{_default_known_hosts()}"\n'
    )
    command = [ssh, "-F", "/dev/stdin", "-G"]
    command += ["-l", spec.user] if spec.user else []
    command += ["-p", str(spec.port)] if spec.port else []
    try:
        done = subprocess.run(
            [*command, "--", spec.address], input=text, capture_output=True, text=True, timeout=_READ_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise HostLost(f"{spec.name}: ssh did not read {options.config_file} within {_READ_LIMIT_S:g} s") from None
    if done.returncode != 0:
        cause = (done.stderr.strip().splitlines() or ["ssh -G failed"])[0]
        raise HostRefused(f"{spec.name}: {options.config_file} cannot be read: {cause}")
    config: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        config.setdefault(key.lower(), []).append(value)
    return config


def _one(config: Mapping[str, list[str]], key: str, default: str = "") -> str:
    return config.get(key, [default])[0]


def _files(names: Sequence[str], tokens: Mapping[str, str]) -> list[Path]:
    return [Path(_expand(name, tokens)).expanduser() for name in names if name not in ("none", "")]


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)
