"""HTML that is safe from injection: everything that this module did not create is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class Html(str):
    """Markup created by `tag`, which is not escaped again. A `str` always is."""

    __slots__ = ()


EMPTY = Html("")
_WITHOUT_END = ("meta", "rect", "path", "line", "polyline")
"""HTML and SVG elements without content."""
_LONG = 60
"""A fact with more characters has its own line."""
_TALL = 40
"""A table with more rows scrolls vertically below a fixed header."""


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element. Children that are `Html` are inserted unchanged, None is skipped, everything else is text.

    Attributes: `class_` is `class`, `_` is `-`; None and False are skipped, True has no value.
    """
    head = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        head += f" {key}" if value is True else f' {key}="{_escaped(str(value))}"'
    if name in _WITHOUT_END:
        return Html(f"<{head}/>")
    return Html(f"<{head}>{join(children)}</{name}>")


def join(parts: Iterable[object], between: object = EMPTY) -> Html:
    """Concatenates parts."""
    return Html(_markup(between).join(_markup(part) for part in parts if part is not None))


def _markup(part: object) -> str:
    return part if isinstance(part, Html) else _escaped(str(part))


def _escaped(text: str) -> str:
    # Control characters and lone surrogates are not allowed in a document; show them escaped.
    shown = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)
    return html.escape(shown, quote=True)


@dataclass(frozen=True)
class Cell:
    """A table cell with a sort key that differs from its text."""

    shown: object
    value: float | str | None = None
    """The sort key; cells without one come last in both directions."""
    strong: bool = False


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]], *, sortable: bool = False) -> Html:
    """A table that scrolls if the window is narrow. Clicking a column title sorts it if `sortable`.

    The first cell of each row is its header. Columns of numbers (or `Cell` with a number) are right-aligned.
    """
    if not rows:
        return tag("p", f"{caption}: none.")
    numeric = [
        any(_is_number(row[i]) for row in rows) and all(_is_number(row[i]) or _is_blank(row[i]) for row in rows)
        for i in range(len(head))
    ]
    titles = [
        tag("th", tag("button", title, type="button") if sortable else title, scope="col", class_=number and "n")
        for title, number in zip(head, numeric, strict=True)
    ]
    body = [
        tag("tr", *(_cell(cell, header=i == 0, number=numeric[i], sortable=sortable) for i, cell in enumerate(row)))
        for row in rows
    ]
    whole = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *titles)),
        tag("tbody", *body),
        class_=sortable and "sortable",
    )
    tall = len(rows) > _TALL
    return tag("div", whole, class_="scroll tall" if tall else "scroll", role="region", aria_label=caption, tabindex=0)


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """A list of names and values, without values that are None."""
    lines = [
        tag("div", tag("dt", name), tag("dd", value), class_=len(str(value)) > _LONG and "long")
        for name, value in pairs
        if value is not None
    ]
    return tag("dl", *lines) if lines else EMPTY


def _cell(cell: Any, *, header: bool, number: bool, sortable: bool) -> Html:
    content = cell.shown if isinstance(cell, Cell) else "–" if cell is None else cell
    if isinstance(cell, Cell) and cell.strong:
        content = tag("strong", content)
    by = cell.value if isinstance(cell, Cell) else cell if _is_number(cell) else None
    options = {"class_": number and "n", "data_v": by if sortable else None}
    return tag("th", content, scope="row", **options) if header else tag("td", content, **options)


def _is_number(cell: Any) -> bool:
    value = cell.value if isinstance(cell, Cell) else cell
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, Cell) and cell.value is None)
