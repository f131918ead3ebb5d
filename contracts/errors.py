"""The exception tree, with the exit code of a command that meets each.

    DripleError                1   every expected error; commands catch it
    |-- BadInput               2   the input of the user is wrong; nothing was started
    |   |-- UnknownName        2   a name that is not in a closed list; shows the nearest and all known names
    |   |-- BadSetting         2   a setting text that does not follow the grammar
    |   `-- FileFaults         2   all faults of a file, each with its place
    `-- RunFailed              1   something that was started failed
        |-- CorruptRun         1   a run directory that cannot be read
        `-- HostError          1   an error of a host
            |-- HostRefused    1   wrong login, key or host key: waiting does not help
            `-- HostLost       1   down, unreachable or too slow: it may come back

Exit code 0 is success. Anything outside this tree is a bug and shows its traceback.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, Optional, Sequence


class DripleError(Exception):
    """Every expected error. `str()` of it gives the cause and the remedy."""

    exit_code = 1

    def lines(self) -> Sequence[str]:
        """The lines that a command prints on stderr, one per fault."""
        return [str(self)]


class BadInput(DripleError):
    """The input of the user is wrong. Raised before anything is started or written."""

    exit_code = 2


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> Optional[str]:
    """The most similar known name, if there is one."""
    import difflib  # slow to import, and errors are rare

    folded = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def unknown(kind: str, name: object, known: Sequence[str]) -> str:
    """The message for an unknown name: the most similar known name, then all of them."""
    guess = nearest(str(name), known)
    hint = f"; did you mean {guess!r}?" if guess else ""
    return f"unknown {kind} {shown(name)}{hint} (known: {', '.join(known)})"


def shown(value: object, limit: int = 60) -> str:
    """`repr` for a message, on one line of limited length."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class UnknownName(BadInput):
    """A name outside a closed list."""

    def __init__(self, kind: str, name: object, known: Sequence[str]) -> None:
        super().__init__(unknown(kind, name, known))


class BadSetting(BadInput):
    """A text that is not a setting."""


class Fault(NamedTuple):
    """One fault of a file with its place."""

    source: str
    """Name of the file."""
    line: Optional[int]
    """From 1; None if the fault has no line."""
    place: str
    """The path inside the document, like `workloads[1].batch_size`; empty for the whole document."""
    message: str
    """Expected and actual value."""

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (where, self.place, self.message) if part)


class FileFaults(BadInput):
    """All faults of a file and of the files that it names."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(map(str, self.faults)))

    def lines(self) -> Sequence[str]:
        return [str(fault) for fault in self.faults]


class RunFailed(DripleError):
    """Something that was started failed."""


class CorruptRun(RunFailed):
    """A run directory with files that are missing, truncated or of another schema."""


class HostError(RunFailed):
    """An error of a host. The message names the host."""


class HostRefused(HostError):
    """The login failed, or the host key is wrong: waiting does not help."""


class HostLost(HostError):
    """The host is down or unreachable. It may come back, and processes may still run there."""
