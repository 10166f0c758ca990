"""The style sheet and the script of a page.

They are strings of Python, and no files of their own, because Flower's bundle takes no CSS and no
JavaScript along.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedivon_app.report.style import COLOURS, COLOURS_DARK, INK, MUTED, RULE


def _series(colours: Sequence[str]) -> str:
    return "; ".join(f"--series-{place}: {colour}" for place, colour in enumerate(colours))


CSS = (
    f":root {{ --paper: #ffffff; --ink: {INK}; --muted: {MUTED}; --rule: {RULE}; --tint: #f5f6f8; "
    f"--accent: #2348b5; --alert: #9a3412; {_series(COLOURS)} }}\n"
    "@media (prefers-color-scheme: dark) { :root { --paper: #15181d; --ink: #e8eaed; "
    "--muted: #a3abb6; --rule: #30363f; --tint: #1d2127; --accent: #9dbbff; --alert: #ffb089; "
    f"{_series(COLOURS_DARK)} }} }}"
    """
* { box-sizing: border-box }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100% }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto } }
body { margin: 0 auto; max-width: 1120px; padding: 3.5rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere }
h1 { margin: .1rem 0 .8rem; font-size: clamp(1.5rem, 4vw, 2.1rem); font-weight: 650;
  line-height: 1.2; letter-spacing: -.015em }
h2 { margin: 0 0 .5rem; font-size: 1.25rem; font-weight: 620; letter-spacing: -.005em }
h3 { margin: 2rem 0 .6rem; font-size: 1rem; font-weight: 600 }
section { margin-top: 4rem; scroll-margin-top: 1.5rem }
p { margin: 0 0 1rem; max-width: 46rem }
.kind { margin: 0; color: var(--muted); font-size: .85rem; letter-spacing: .04em }
.note { color: var(--muted); font-size: .95rem }
.alert { margin: 1.5rem 0 0; padding: .7rem 1rem; border-left: 3px solid var(--alert);
  background: var(--tint); color: var(--alert); white-space: pre-line }
a { color: var(--accent); text-decoration: none }
a:hover { text-decoration: underline }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
ul { margin: 0; padding: 0; list-style: none }
.facts { display: flex; flex-wrap: wrap; gap: .15rem 0; color: var(--muted) }
.facts li:not(:last-child)::after { content: "·"; margin: 0 .55rem }
nav { margin-top: 1.6rem; padding-top: .9rem; border-top: 1px solid var(--rule); font-size: .9rem }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem }
.wide { overflow-x: auto; margin: 0 0 1rem; overflow-wrap: normal }
table { border-collapse: collapse; min-width: 100%; font-size: .92rem;
  font-variant-numeric: tabular-nums }
th, td { padding: .42rem 1rem .42rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; white-space: nowrap }
th { color: var(--muted); font-weight: 500; font-size: .85rem; white-space: normal }
td.long { white-space: normal; min-width: 16rem }
.number { text-align: right }
td.number { position: relative }
th.number, td.number { padding-right: 1.6rem }
th:first-child, td:first-child { position: sticky; left: 0; z-index: 1; background: var(--paper);
  min-width: 8.5rem; max-width: 20rem; white-space: normal; overflow-wrap: break-word }
tbody tr:hover, tbody tr:hover td:first-child { background: var(--tint) }
strong { font-weight: 680 }
.star { position: absolute; padding-left: .35rem; color: var(--accent); font-size: .8em;
  line-height: 2 }
td i { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
th button { all: unset; cursor: pointer }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
th button::after { content: "↕"; margin-left: .35em; opacity: .45 }
th[aria-sort=ascending] button::after { content: "↑"; opacity: 1 }
th[aria-sort=descending] button::after { content: "↓"; opacity: 1 }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 310px), 1fr));
  gap: 1.8rem 2rem; align-items: start }
figure { margin: 0; max-width: 460px }
figure svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font-family: inherit }
svg * { stroke-linejoin: round; stroke-linecap: butt }
.series { transition: opacity .15s }
.series.dim { opacity: .1 }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: .4rem 0 1.2rem;
  font-size: .88rem }
.legend button { display: inline-flex; align-items: center; gap: .5rem; padding: .15rem .2rem;
  border: 0; background: none; color: inherit; font: inherit; text-align: left; border-radius: 4px }
.live .legend button { cursor: pointer }
.legend button[aria-pressed=true] { background: var(--tint); box-shadow: 0 0 0 1px var(--rule) }
.legend svg { flex: none; width: 34px; height: 10px; fill: none }
.switch input { position: absolute; opacity: 0; pointer-events: none }
.switch label { display: inline-block; margin: 0 0 1.1rem; padding: .25rem .9rem;
  border: 1px solid var(--rule); color: var(--muted); font-size: .88rem; cursor: pointer }
.switch label:first-of-type { border-radius: 6px 0 0 6px }
.switch label:last-of-type { border-radius: 0 6px 6px 0; border-left: 0 }
.switch input:checked + label { background: var(--tint); color: var(--ink); font-weight: 600 }
.switch input:focus-visible + label { outline: 2px solid var(--accent); outline-offset: 2px }
.switch > div { display: none }
.switch input:nth-of-type(1):checked ~ div:nth-of-type(1),
  .switch input:nth-of-type(2):checked ~ div:nth-of-type(2) { display: block }
details { margin: 0 0 .5rem; border: 1px solid var(--rule); border-radius: 6px }
summary { padding: .6rem 1rem; cursor: pointer }
details > :not(summary) { margin: 0; padding: 0 1rem 1rem }
.code { position: relative }
.code + details { margin-top: 1rem }
pre { margin: 0; padding: .9rem 1rem; overflow: auto; max-height: 34rem; background: var(--tint);
  border-radius: 6px; font: .84rem/1.55 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap }
.live .code pre { padding-right: 6.5rem }
.code button { position: absolute; top: .5rem; right: .5rem; padding: .1rem .6rem;
  border: 1px solid var(--rule); border-radius: 5px; background: var(--paper); color: var(--muted);
  font: inherit; font-size: .8rem; cursor: pointer }
details .code button { right: 1.5rem }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--rule) }
@media (max-width: 600px) {
  body { padding: 1.6rem 1rem 3rem }
  section { margin-top: 3rem }
  th:first-child, td:first-child { max-width: 9.5rem }
}
@media print {
  .live .code pre { padding-right: 1rem }
  .switch > div { display: block }
  .code button { display: none }
}
"""
)

# Extras only: a series comes forward when its legend is pointed at or pressed, columns can be
# sorted, code be copied.
SCRIPT = """
"use strict";
document.documentElement.classList.add("live");
function begin() {
let pinned = null;
const show = only => document.querySelectorAll(".series").forEach(
  e => e.classList.toggle("dim", only !== null && e.dataset.series !== only));
const keys = document.querySelectorAll(".legend button");
keys.forEach(key => {
  key.addEventListener("pointerenter", () => show(key.dataset.series));
  key.addEventListener("pointerleave", () => show(pinned));
  key.addEventListener("click", () => {
    pinned = pinned === key.dataset.series ? null : key.dataset.series;
    keys.forEach(k => k.setAttribute("aria-pressed", String(k.dataset.series === pinned)));
    show(pinned);
  });
});
document.querySelectorAll("table").forEach(table => {
  const body = table.tBodies[0];
  if (body.rows.length < 3) return;
  table.querySelectorAll("th").forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = (a, b) => {
        const [x, y] = [a, b].map(row => row.cells[place]);
        const [p, q] = [x, y].map(cell => parseFloat(cell.dataset.value));
        if (isNaN(p) !== isNaN(q)) return isNaN(p) ? 1 : -1;
        return (up ? 1 : -1) * (isNaN(p) ? x.textContent.localeCompare(y.textContent) : p - q);
      };
      body.append(...[...body.rows].sort(order));
    });
  });
});
if (navigator.clipboard) document.querySelectorAll(".code").forEach(block => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", () => navigator.clipboard.writeText(
    block.querySelector("pre").textContent).then(
    () => { button.textContent = "Copied"; }, () => { button.textContent = "Not allowed"; }));
  block.append(button);
});
}
begin();
"""
