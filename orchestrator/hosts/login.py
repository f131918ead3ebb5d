"""SSH login with keys from files and from the SSH agent."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import paramiko

from driple.contracts.errors import HostLost, HostRefused
from driple.orchestrator.hosts.route import Route

_AGENT_LIMIT_S = 20.0  # it may ask its user to confirm


class Login:
    """The keys for one host, those of files first: servers close the connection after six wrong keys."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._shown: list[str] = []
        self._locked: list[Path] = []

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Raises HostRefused, with what was tried, or HostLost."""
        agent = _Agent(self._route.agent)
        try:
            for name, key in self._keys(agent):
                if self._takes(transport, name, key):
                    return
        finally:
            agent.close()
        raise HostRefused(f"{self._route}: login refused; {self._tried()}")

    def _takes(self, transport: paramiko.Transport, name: str, key: paramiko.PKey) -> bool:
        route = self._route
        try:
            more = transport.auth_publickey(route.user, key)
        except paramiko.BadAuthenticationType as error:
            ways = ", ".join(error.allowed_types)
            raise HostRefused(f"{route}: takes no keys, only {ways}; allow PubkeyAuthentication there") from None
        except paramiko.AuthenticationException as error:
            if "timeout" in str(error):
                raise HostLost(f"{route}: no answer to the login within {route.timeout_s:g} s") from None
            self._shown.append(name)
            if transport.is_active():
                return False
            # Most likely after too many wrong keys.
            raise HostRefused(
                f"{route}: closed the connection at login; {self._tried()}; if there are many keys, "
                "name the right one (identity_file, or IdentityFile with IdentitiesOnly yes)"
            ) from None
        except (paramiko.SSHException, EOFError, OSError, ValueError) as error:
            if not transport.is_active():
                raise HostLost(f"{route}: connection lost at login: {error}") from None
            self._shown.append(f"{name} (unusable: {error})")  # such as an agent that refuses to sign
            return False
        if more:
            raise HostRefused(f"{route}: wants a second factor ({', '.join(more)}) after the key; not possible here")
        return True

    def _keys(self, agent: _Agent) -> Iterator[tuple[str, paramiko.PKey]]:
        offered: set[bytes] = set()
        unknown_half = False
        for path in self._route.identity_files:
            key, locked = _load(path)
            if key is not None:
                offered.add(key.asbytes())
                yield str(path), key
                continue
            public = _public_half(path)
            held = [key for key in agent.held() if public is not None and key.asbytes() == public]
            for key in held:
                offered.add(key.asbytes())
                yield f"{path} (agent)", key
            if locked and not held:
                self._locked.append(path)
                unknown_half |= public is None
        if not self._route.identities_only or unknown_half:
            for key in agent.held():
                if key.asbytes() not in offered:
                    yield f"agent's {getattr(key, 'comment', '') or key.get_name()}", key

    def _tried(self) -> str:
        tried = f"tried {', '.join(self._shown)}" if self._shown else "there was no key to try"
        if self._locked:
            files = " ".join(map(str, self._locked))
            return f"{tried}; {files} has a passphrase: ssh-add {files}"
        return f"{tried}; is its public half in ~/.ssh/authorized_keys there? (ssh-copy-id {self._route.by_hand})"


def _load(path: Path) -> tuple[paramiko.PKey | None, bool]:
    """A key, and whether it needs a passphrase."""
    try:
        stat = path.stat()
        return _cached(path, stat.st_mtime_ns, stat.st_size), False
    except (TypeError, paramiko.PasswordRequiredException):  # raised for a missing passphrase
        return None, True
    except (OSError, ValueError, paramiko.SSHException, paramiko.UnknownKeyType):
        return None, False


@functools.lru_cache(maxsize=64)
def _cached(path: Path, modified_ns: int, size: int) -> paramiko.PKey:
    """Cached: loading an RSA key takes longer than a login, and many hosts share one."""
    return paramiko.PKey.from_path(path)


def _public_half(path: Path) -> bytes | None:
    for candidate in (path.with_name(f"{path.name}.pub"), path):
        with suppress(OSError, ValueError, IndexError, paramiko.SSHException):
            fields = candidate.read_text(encoding="utf-8").split()
            return paramiko.PublicBlob.from_string(" ".join(fields[:2])).key_blob  # type: ignore[no-any-return]
    return None


class _Agent:
    """The user's SSH agent, asked only when needed; without an agent there are no keys."""

    def __init__(self, where: str) -> None:
        variable = where.lstrip("$")
        self._where = os.environ.get(variable, "") if variable.isupper() or variable != where else where
        self._asked: tuple[paramiko.AgentKey, ...] | None = None
        self._agent = paramiko.agent.AgentSSH()

    def held(self) -> tuple[paramiko.AgentKey, ...]:
        if self._asked is None:
            self._asked = ()
            if self._where and self._where != "none":
                # paramiko's own Agent has neither a path nor a time limit.
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                sock.settimeout(_AGENT_LIMIT_S)
                try:
                    sock.connect(str(Path(self._where).expanduser()))
                    self._agent._connect(sock)
                    self._asked = self._agent.get_keys()
                except (OSError, paramiko.SSHException):
                    sock.close()
        return self._asked

    def close(self) -> None:
        self._agent._close()
