"""The page: its skeleton, and what a report is made of."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driple.pipeline.reports.html import EMPTY, Html, join, tag
from driple.pipeline.reports.style import CSS, SCRIPT

Watch = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True)
class Section:
    """A part of a page, with its entry in the list on top."""

    title: str
    body: Html

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return anchor(self.title)


@dataclass(frozen=True)
class Report:
    """What a page says, before it is a page."""

    title: str
    sections: Sequence[Section]
    facts: Mapping[str, Any] = field(repr=False)
    """The same for programs: plain JSON values."""
    lead: Html = EMPTY
    """Under the title."""
    notes: Sequence[str] = ()
    """What a reader must not overlook."""


def anchor(text: str) -> str:
    """A text as a name for links: letters and digits only, whatever it holds."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


def notes(texts: Sequence[str]) -> Html:
    """Sentences that stand out."""
    return join(tag("p", text, class_="note") for text in texts)


def render(report: Report, title: str | None = None) -> str:
    """The whole file. The same report gives the same bytes: no time and no place of the making is in it."""
    title = title or report.title
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
    # No source but these two blocks: a browser then refuses everything else, whatever the files of a run held.
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
