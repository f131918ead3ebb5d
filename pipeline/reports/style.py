"""Style sheet of the pages, and the script that sorts their tables."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2126; --soft: #5b6670; --rule: #d9dee3; --card: #f5f7f9;
  --warn: #8a4b00; --warn-paper: #fff3e0; --line: #1f4e79; --burst: #f4a259; --cut: #b9bfc5; --threshold: #3f7a67;
  --s0: #1f4e79; --s1: #9aa3ab; --s2: #e08a35; --s3: #4f8f78; --s4: #8c5e8c; --s5: #b5495b; --s6: #6c7fd8; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e4e8ec; --soft: #9aa6b1; --rule: #333c45;
  --card: #1c2228; --warn: #ffc069; --warn-paper: #33270f; --line: #8ec5ff; --burst: #a8651f; --cut: #59626b;
  --threshold: #7cc7ab; --s0: #8ec5ff; --s1: #7d8892; --s2: #f0a560; --s3: #7cc7ab; --s4: #c79ac7; --s5: #f08a9b;
  --s6: #a3b1ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem clamp(.8rem, 3vw, 2.5rem) 4rem; max-width: 80rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .6rem;
  padding-top: .6rem; border-top: 1px solid var(--rule); } h3 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; }
h4 { font-size: .95rem; margin: 1rem 0 .2rem; } p { max-width: 60rem; }
a { color: var(--line); } nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; }
.soft, figcaption, caption { color: var(--soft); font-size: .88rem; } footer { margin-top: 3rem; }
.note { background: var(--warn-paper); color: var(--warn); border-left: 4px solid currentColor; padding: .5rem .8rem;
  margin: .8rem 0; max-width: 60rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 11rem), 1fr)); gap: .6rem;
  margin: 1rem 0; }
dl div { background: var(--card); padding: .5rem .8rem; border-radius: 6px; min-width: 0; }
dl .long { grid-column: 1 / -1; }
dt { color: var(--soft); font-size: .82rem; } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; max-width: 100%; margin: .8rem 0; } .tall { max-height: 40rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: .88rem; } caption { text-align: left; padding-bottom: .3rem; }
th, td { padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; }
thead th { color: var(--soft); white-space: nowrap; position: sticky; top: 0;
  background: var(--paper); } tbody th { font-weight: 500; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button:hover { color: var(--ink); text-decoration: underline; }
th button:focus-visible, .scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--line); }
th[aria-sort=ascending] button::after { content: " \\2191"; } th[aria-sort=descending] button::after {
  content: " \\2193"; }
figure { margin: 0; min-width: 0; } .grid { display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); margin: .8rem 0; }
.tables { grid-template-columns: repeat(auto-fill, minmax(min(100%, 32rem), 1fr)); }
svg { display: block; width: 100%; height: auto; } .wide svg { min-width: 40rem; }
summary { cursor: pointer; padding: .3rem 0; } details { margin: .4rem 0; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: .4rem 0; list-style: none;
  font-size: .88rem; } .legend svg { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; } svg .axis { stroke: var(--rule); }
svg .mark { stroke: var(--s5); stroke-dasharray: 4 3; fill: none; } svg .same { stroke: var(--s3); fill: none;
  stroke-dasharray: 4 3; } svg .bar { fill: var(--s0); } svg .value { stroke: var(--line); fill: none; }
svg .burst { fill: var(--burst); fill-opacity: .55; } svg .partial { fill: var(--cut); fill-opacity: .55; }
svg .threshold { stroke: var(--threshold); stroke-dasharray: 5 3; fill: none; } svg .step { stroke: var(--soft); }
svg .dot { fill-opacity: .7; } svg .curve { fill: none; stroke-width: 1.5; } svg .spread { stroke: var(--cut); }
.f0 { fill: var(--s0); } .f1 { fill: var(--s1); } .f2 { fill: var(--s2); } .f3 { fill: var(--s3); }
.f4 { fill: var(--s4); } .f5 { fill: var(--s5); } .f6 { fill: var(--s6); } .l0 { stroke: var(--s0); }
.l1 { stroke: var(--s1); } .l2 { stroke: var(--s2); } .l3 { stroke: var(--s3); } .l4 { stroke: var(--s4); }
.l5 { stroke: var(--s5); } .l6 { stroke: var(--s6); }
@media print { body { max-width: none; } .tall { max-height: none; } }
"""

COLOURS = 7
"""Number of classes `f0`, `f1`, ... (fill) and `l0`, `l1`, ... (stroke)."""

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending", number = head.classList.contains("n");
    const key = row => { const cell = row.cells[column], v = cell.dataset.v;
      return number ? (v === undefined ? NaN : Number(v)) : v === undefined ? cell.textContent : v; };
    const rows = [...body.rows].map(row => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (number && (Number.isNaN(a) || Number.isNaN(b))) return Number.isNaN(a) - Number.isNaN(b);
      const order = number ? a - b : a.localeCompare(b, "en", { numeric: true });
      return down ? -order : order; });
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(([, row]) => row));
  }));
}
"""
