"""Pages: what is escaped, what a browser may load, and pictures that survive any numbers."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from driple.pipeline.reports.axes import scale
from driple.pipeline.reports.charts import Point, bars, histogram, lines, scatter
from driple.pipeline.reports.html import Cell, Html, facts, join, table, tag
from driple.pipeline.reports.number_text import amount, duration, listed, percent, plain, size, when
from driple.pipeline.reports.page_layout import Report, Section, render

HOSTILE = "<script>alert(1)</script>\"' onload=x &amp;"


class Elements(HTMLParser):
    """All elements of a page, and whether each that was opened was closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(name)
        self.attributes += [(key, value or "") for key, value in attributes]
        self.open.append(name)

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(name)
        self.attributes += [(key, value or "") for key, value in attributes]

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name


def picture(figure: Html) -> ElementTree.Element:
    """The SVG of a figure; it is well-formed, or this fails."""
    (text,) = re.findall(r"<svg.*?</svg>", figure.split("<figure>")[1], flags=re.DOTALL)
    return ElementTree.fromstring(text)


def numbers(element: ElementTree.Element) -> list[float]:
    """Every coordinate."""
    texts = [
        value
        for part in element.iter()
        for key, value in part.attrib.items()
        if key in ("x", "y", "x1", "x2", "y1", "y2", "width", "height", "cx", "cy", "points", "d", "viewBox")
    ]
    return [float(found) for text in texts for found in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?|nan|inf", text)]


def test_text_is_escaped_and_markup_is_not_escaped_twice() -> None:
    inner = tag("b", HOSTILE, title=HOSTILE)
    assert "<script" not in inner
    assert tag("p", inner) == f"<p>{inner}</p>"
    assert tag("p", "a < b", None, 3, hidden=True, class_=False) == "<p hidden>a &lt; b3</p>"
    assert join(["<", tag("i")], ", ") == "&lt;, <i></i>"
    assert "\x1b" not in tag("p", "\x1b[31m\ud800")


def test_every_part_of_a_page_escapes() -> None:
    parts = [
        table(HOSTILE, [HOSTILE], [[HOSTILE], [Cell(HOSTILE, HOSTILE)]], sortable=True),
        facts([(HOSTILE, HOSTILE)]),
        histogram(HOSTILE, [1.0, 2.0], lambda _: HOSTILE, mark=(1.5, HOSTILE)),
        scatter(HOSTILE, [Point(1, 2, HOSTILE)], lambda _: HOSTILE, HOSTILE, HOSTILE),
        bars(HOSTILE, [HOSTILE], {HOSTILE: [1.0]}, lambda _: HOSTILE),
        lines(HOSTILE, [(0, [1.0, 2.0])], lambda _: HOSTILE, HOSTILE),
    ]
    page = render(Report(HOSTILE, [Section(HOSTILE, join(parts))], {}, notes=[HOSTILE]), HOSTILE)
    found = Elements(page)
    assert found.names.count("script") == 1
    assert not found.open
    assert not [key for key, _ in found.attributes if key.startswith("on")]
    assert "&lt;script&gt;alert(1)" in page


def test_a_page_may_load_nothing() -> None:
    page = render(Report("t", [Section("a", tag("p", "b"))], {}))
    assert "default-src 'none'" in html.unescape(page)
    assert "unsafe" not in page
    assert not re.search(r"https?:|//[a-z]|@import|url\(|<link|<img|<iframe", page)
    assert 'lang="en"' in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_the_same_report_is_the_same_page() -> None:
    report = Report("t", [Section("a", histogram("x", [1, 2, 3], plain))], {})
    assert render(report) == render(report)


def test_tables_have_headers_and_sort_by_values_and_not_by_what_is_shown() -> None:
    found = table("c", ["name", "time"], [["a", Cell("2 ms", 0.002)], ["b", None]], sortable=True)
    assert '<th scope="col"><button type="button">name</button></th>' in found
    assert '<th scope="row">a</th><td class="n" data-v="0.002">2 ms</td>' in found
    assert "<td" in found
    assert '<td class="n">–</td>' in found
    assert "<caption>c</caption>" in found
    assert table("nothing", ["a"], []) == "<p>nothing: none.</p>"


@pytest.mark.parametrize(
    "values",
    [
        [1.0],
        [0.0],
        [0.0, 0.0],
        [5.0] * 100,
        [1e-9, 1e9],
        [-3.0, 4.0],
        [-1.0],
        [0.1 + 1e-17, 0.1],
        [1.0, float("nan"), float("inf")],
        [0.001 * i for i in range(500)],
    ],
    ids=str,
)
def test_pictures_stand_any_numbers(values: list[float]) -> None:
    for figure in (
        histogram("h", values, plain),
        histogram("h", values, plain, mark=(20.0, "limit")),
        scatter("s", [Point(value, value, spread=abs(value)) for value in values], plain, "x", "y"),
        bars("b", ["l"] * len(values), {"a": values, "b": [None] * len(values)}, plain),
        lines("l", [(0, values)], plain, "epoch", [0]),
    ):
        found = picture(figure)
        width, height = (float(size) for size in found.attrib["viewBox"].split()[2:])
        assert found.attrib["aria-label"]
        assert all(-50 <= number <= max(width, height) + 50 for number in numbers(found))


def test_pictures_of_nothing_say_so() -> None:
    for figure in (
        histogram("h", [], plain),
        scatter("s", [], plain, "x", "y"),
        bars("b", ["l"], {"a": [None]}, plain),
        lines("l", [(0, [])], plain, "epoch"),
    ):
        assert "no values" in figure


def test_a_histogram_counts_every_value_once() -> None:
    found = picture(histogram("h", [1.0, 1.0, 1.0, 2.0, 10.0], plain))
    heights = [float(bar.attrib["height"]) for bar in found.iter("rect")]
    assert sum(heights) == pytest.approx(heights[0] / 3 * 5, rel=0.02)
    assert "5 values from 1 to 10, median 1" in found.attrib["aria-label"]


def test_a_bar_that_is_lost_is_cut_and_says_its_value() -> None:
    figure = bars("b", ["a", "b", "c", "d", "e"], {"x": [0.1, 0.1, 0.1, 0.1, 50.0]}, percent)
    assert "5000.0 % (cut)" in figure
    assert figure.count("(cut)") == 1


def test_ticks_are_round_and_few() -> None:
    assert scale([0.0, 97.0], 0, 100, from_zero=True).ticks(4) == [0, 50, 100]
    assert scale([0.0, 0.8], 0, 100, from_zero=True).ticks(4) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert scale([0.002, 3.0], 0, 100, log=True).ticks(4) == [0.01, 0.1, 1.0]


def test_words() -> None:
    assert [duration(s) for s in (None, 0.0, 0.0123, 1.2345, 90.0)] == ["–", "0 s", "12.3 ms", "1.23 s", "90 s"]
    assert [amount(v, "B/s") for v in (12.0, 1.25e7)] == ["12 B/s", "12.5 MB/s"]
    assert amount(98.25, "%") == "98.2 %"
    assert (size(999), size(1_230_000)) == ("999 B", "1.23 MB")
    assert percent(0.1234) == "12.3 %"
    assert when(0.0) == "1970-01-01 00:00 UTC"
    assert when(1e300) is None
    assert listed(["b", "a", "b", None]) == "a, b"
    assert listed([None]) is None


def test_labels_of_bars_fit_into_the_picture() -> None:
    figure = bars("b", list("abcde"), {"x": [0.1, 0.1, 0.1, 0.1, 1.527]}, percent)
    ((at, text),) = re.findall(r'<text x="([0-9.]+)"[^>]*>([^<]*\(cut\))', figure)
    assert text == "152.7 % (cut)"
    assert float(at) + 6.5 * len(text) <= 760
