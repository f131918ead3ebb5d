"""Notifications when a sweep has ended or a run has failed: a command, or JSON posted to a web address."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from driple.contracts.errors import BadInput

log = logging.getLogger(__name__)

COMMAND_S = 60.0
WEBHOOK_S = 10.0
FINISHED = "finished"
FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Notify:
    """The receivers. A failed notification is a warning, never a failure of the sweep."""

    on_finish: str | None = None  # shell command; gets the summary as JSON on stdin and DRIPLE_EVENT in its environment
    on_failure: str | None = None
    webhook: str | None = None

    def __post_init__(self) -> None:
        if self.webhook is not None and urllib.parse.urlsplit(self.webhook).scheme not in ("http", "https"):
            raise BadInput(f"--webhook: expected an http:// or https:// address, got {self.webhook[:60]!r}")

    def tell(self, event: str, value: dict[str, Any], *, wait: bool = False) -> None:
        """Sends a notification, in the background unless `wait`."""
        command = self.on_failure if event == FAILED else self.on_finish
        if command is None and self.webhook is None:
            return
        thread = threading.Thread(target=self._tell, args=(event, value, command), name=f"tell {event}", daemon=True)
        thread.start()
        if wait:
            thread.join(COMMAND_S + WEBHOOK_S)

    def _tell(self, event: str, value: dict[str, Any], command: str | None) -> None:
        text = json.dumps({"event": event, **value})
        if command is not None:
            _run(command, event, text)
        if self.webhook is not None:
            _post(self.webhook, text)


def _run(command: str, event: str, text: str) -> None:
    try:
        done = subprocess.run(
            command,
            shell=True,  # the user's own command line, as they would type it
            input=text,
            text=True,
            capture_output=True,
            timeout=COMMAND_S,
            env={**os.environ, "DRIPLE_EVENT": event},
            check=False,
        )
        if done.returncode:
            log.warning("the command for %s ended with %d: %s", event, done.returncode, done.stderr.strip()[-200:])
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("the command for %s: %s", event, error)


def _post(address: str, text: str) -> None:
    # Only the host is named: addresses of webhooks carry secrets.
    host = urllib.parse.urlsplit(address).hostname
    request = urllib.request.Request(address, text.encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WEBHOOK_S) as answer:
            answer.read(1024)
    except (OSError, ValueError) as error:
        reason = error.code if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        log.warning("the webhook at %s: %s", host, reason)
