"""The layout of a page, and the parts of a report."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.formats.dataset import is_simulated
from driple.pipeline.reports.html import EMPTY, Html, join, tag
from driple.pipeline.reports.style import CSS, SCRIPT

Watch = Callable[[str, int, int], None]
"""Called with the name of the current work, how much of it is done, and the total."""


@dataclass(frozen=True)
class Section:
    """A part of a page, with an entry in the table of contents."""

    title: str
    body: Html

    @property
    def anchor(self) -> str:
        return anchor(self.title)


@dataclass(frozen=True)
class Report:
    """The content of a page."""

    title: str
    sections: Sequence[Section]
    facts: Mapping[str, Any] = field(repr=False)
    """The same for programs, as JSON values."""
    lead: Html = EMPTY
    """Under the title."""
    notes: Sequence[str] = ()
    """Warnings at the top of the page."""
    provenance: str = ""
    """Of everything on the page."""

    def heading(self, title: str | None) -> str:
        """The title, or another one, with the provenance if the page is based on simulation."""
        return f"{title or self.title}{f' ({self.provenance})' if is_simulated(self.provenance) else ''}"


@dataclass(frozen=True)
class Page:
    """A kind of report."""

    expected: str
    """A description of its inputs, for error messages."""
    find: Callable[[Path], Sequence[Path]]
    """The inputs of this kind at a path; empty if there are none."""
    make: Callable[[Sequence[Path], Path, Watch], Report]
    """Makes the report of these inputs. The second argument is the path that the user gave."""


def anchor(text: str) -> str:
    """A text as a target for links: letters and digits only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


def notes(texts: Sequence[str]) -> Html:
    """Highlighted sentences."""
    return join(tag("p", text, class_="note") for text in texts)


def render(report: Report, title: str | None = None) -> str:
    """The HTML file. The same report gives the same bytes: it contains no time or place of its creation."""
    title = report.heading(title)
    links = [tag("li", tag("a", section.title, href=f"#{section.anchor}")) for section in report.sections]
    sections = [
        tag("section", tag("h2", section.title, id=section.anchor), section.body) for section in report.sections
    ]
    body = tag(
        "body",
        tag("header", tag("h1", title), report.lead, notes(report.notes)),
        tag("nav", tag("ul", *links), aria_label="Parts of this page"),
        tag("main", *sections),
        tag("footer", "Made by driple-report. Everything is in this file; it loads nothing.", class_="soft"),
        tag("script", Html(SCRIPT)),
    )
    # Allow these two blocks only, so that a browser refuses scripts that the files of a run may contain.
    policy = f"default-src 'none'; style-src {_hash(CSS)}; script-src {_hash(SCRIPT)}; base-uri 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(CSS)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
