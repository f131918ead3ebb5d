"""Host keys: reads known_hosts files, checks keys against them and adds new ones."""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from driple.contracts.errors import HostRefused
from driple.orchestrator.hosts.route import Route

_log = logging.getLogger(__name__)
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}  # key types whose signature algorithms have other names


@dataclass(frozen=True)
class Known:
    """One key of a known_hosts file."""

    place: str
    key_type: str
    blob: bytes
    revoked: bool


class HostKeys:
    """The known keys of one host."""

    def __init__(self, route: Route, *, only: str | None = None) -> None:
        """Reads the files of the route; `only` replaces them by one public key, as in a .pub file."""
        self._route = route
        self._only = only is not None
        if only is not None:
            fields = only.split()
            self._known = [Known("the lab", fields[0], base64.b64decode(fields[1]), revoked=False)]
        else:
            self._known = list(_known(route.known_hosts, route.key_name))

    def algorithms(self, offered: Sequence[str]) -> list[str]:
        """Key algorithms in order of preference: known ones first, so that the host presents a known key."""
        types = [known.key_type for known in self._known if not known.revoked]
        known = [name for key_type in types for name in _SIGNATURES.get(key_type, (key_type,)) if name in offered]
        return list(dict.fromkeys([*known, *([] if self._only and known else offered)]))

    def expected(self) -> str:
        types = sorted({known.key_type for known in self._known})
        return f"known keys are {', '.join(types)}" if types else "no key of it is known"

    def check(self, key: paramiko.PKey) -> None:
        """Raises HostRefused unless the key is known, or new and new ones are accepted."""
        shown = f"{key.get_name()} {key.fingerprint}"
        same = [known for known in self._known if known.blob == key.asbytes()]
        trusted = [known for known in self._known if not known.revoked]
        for known in same:
            if known.revoked:
                raise HostRefused(f"{self._route}: its host key {shown} is revoked in {known.place}")
        if same:
            return
        if trusted:
            remedy = "create the lab again"
            if not self._only:
                forget = f"ssh-keygen -R {self._route.key_name!r} -f {self._route.known_hosts[0]}"
                remedy = f"if that is intended, remove the old key: {forget}"
            raise HostRefused(
                f"{self._route}: its host key has CHANGED to {shown}; {trusted[0].place} has another. "
                f"The connection may be intercepted, or the host was reinstalled: {remedy}"
            )
        if not self._route.accept_new or not self._route.known_hosts:
            files = self._route.known_hosts[0] if self._route.known_hosts else "any file"
            raise HostRefused(
                f"{self._route}: its host key {shown} is not in {files}; compare it with the host's own, then connect "
                f"once by hand (ssh {self._route.by_hand}) or accept new keys with --accept-new-host-keys"
            )
        _add(self._route, key)
        _log.warning("%s: new host key %s accepted and added to %s", self._route, shown, self._route.known_hosts[0])


def _known(files: Iterable[Path], name: str) -> Iterator[Known]:
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            fields = line.split()
            marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
            # paramiko does not support host certificates.
            if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", "@revoked"):
                continue
            if _matches(fields[0], name):
                try:
                    blob = base64.b64decode(fields[2], validate=True)
                except binascii.Error:
                    continue
                yield Known(f"{path}:{number}", fields[1], blob, revoked=bool(marker))


def _matches(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(part) for part in patterns[3:].split("|"))
        except ValueError:
            return False
        return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
    found = False
    for pattern in patterns.lower().split(","):
        # OpenSSH supports only * and ?; brackets enclose a host with a port.
        if fnmatch.fnmatchcase(name, pattern.lstrip("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _add(route: Route, key: paramiko.PKey) -> None:
    """Appends a key. Several threads and processes may do so at once."""
    path, name = route.known_hosts[0], route.key_name
    if route.hash_names:
        name = paramiko.HostKeys.hash_host(name)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            content = b"" if path.is_char_device() else stream.read()
            if any(known.blob == key.asbytes() for known in _known([path], route.key_name)):
                return
            gap = "" if not content or content.endswith(b"\n") else "\n"
            stream.write(f"{gap}{name} {key.get_name()} {key.get_base64()}\n".encode())
    except OSError as error:
        raise HostRefused(f"{route}: cannot add its host key to {path}: {error.strerror}") from None
