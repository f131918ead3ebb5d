"""The tree of errors. Each knows the exit code of the command that meets it.

    DripleError                1   anything we foresaw; catch this at the top of a command
    |-- BadInput               2   what the user gave cannot be used; nothing was started
    |   |-- UnknownName        2   a name that is not in a closed list; shows the nearest and the rest
    |   |-- BadSetting         2   a setting text that does not follow the grammar
    |   `-- FileFaults         2   every fault of one file, each with its place
    `-- RunFailed              1   something that was started did not end well
        |-- CorruptRun         1   a run directory that cannot be read
        `-- HostError          1   a host did not do its part
            |-- HostRefused    1   login, key or host key: waiting does not help
            `-- HostLost       1   down, cut off or too slow: it may come back

Exit code 0 is success. Anything outside this tree is a bug and shows its traceback.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, Optional, Sequence


class DripleError(Exception):
    """Anything that Driple foresaw. `str()` of it gives the cause and the remedy."""

    exit_code = 1

    def lines(self) -> Sequence[str]:
        """What a command prints on stderr: one line a fault."""
        return [str(self)]


class BadInput(DripleError):
    """The user's input cannot be used. Raised before anything is started or written."""

    exit_code = 2


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> Optional[str]:
    """The known name that `name` was probably meant to be, if any is close."""
    import difflib  # errors are rare, and this keeps the start of an agent quick

    folded = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def unknown(kind: str, name: object, known: Sequence[str]) -> str:
    """The sentence for a name that is not in a closed list: nearest first, then all of them."""
    guess = nearest(str(name), known)
    hint = f"; did you mean {guess!r}?" if guess else ""
    return f"unknown {kind} {shown(name)}{hint} (known: {', '.join(known)})"


def shown(value: object, limit: int = 60) -> str:
    """`repr` for a message: on one line and never long, whatever the user's file holds."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class UnknownName(BadInput):
    """A name outside a closed list."""

    def __init__(self, kind: str, name: object, known: Sequence[str]) -> None:
        super().__init__(unknown(kind, name, known))


class BadSetting(BadInput):
    """A text that is no setting."""


class Fault(NamedTuple):
    """One thing that is wrong in a file, and where."""

    source: str
    """The file, as the user named it."""
    line: Optional[int]
    """Counted from 1; None where a fault has no one line."""
    place: str
    """The path inside the document, like `workloads[1].batch_size`; empty for the whole document."""
    message: str
    """What was expected and what was found."""

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (where, self.place, self.message) if part)


class FileFaults(BadInput):
    """All faults of a file (and of the files it names), reported together."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(map(str, self.faults)))

    def lines(self) -> Sequence[str]:
        return [str(fault) for fault in self.faults]


class RunFailed(DripleError):
    """Something that was started did not end well."""


class CorruptRun(RunFailed):
    """A run directory whose files are missing, cut short or of another schema."""


class HostError(RunFailed):
    """A host did not do its part. The message names it."""


class HostRefused(HostError):
    """The host does not let us in, or is not the one we know: waiting does not help."""


class HostLost(HostError):
    """The host is down, cut off or does not answer. It may come back, and what ran there may still run."""
