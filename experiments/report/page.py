"""`report.html`: one file without scripts from elsewhere, that opens offline, on a phone too, in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from dorylax.experiments.report import figures, theme
from dorylax.experiments.report.figures import NamedFigure
from dorylax.experiments.report.tables import TextTable

WIDE, NARROW = 7.6, 3.7
"""Inches of a figure on a screen and on a phone; text has the same size on both."""


_SHORT = 22
"""Letters of what stands on one line of a table's cell."""


class Section(NamedTuple):
    """A part of a report.

    Attributes:
        title: empty for the only one.
        sentences: what was found.
        tables: with their titles.
        figures: in order.
    """

    title: str
    sentences: Sequence[str]
    tables: Sequence[tuple[str, TextTable]]
    figures: Sequence[NamedFigure]


class Report(NamedTuple):
    """All that a report shows.

    Attributes:
        title: of the sweep.
        answers: to what the sweep asks; of several, and of parts, one each.
        description: of the sweep.
        state: how much is done.
        failures: runs that failed, and why.
        warnings: what makes its comparisons unsound.
        sections: one for each group.
        commands: how to run it again.
        files: titles and texts of the sweeps' files and of configurations.
        environment: names and values.
    """

    title: str
    answers: Sequence[str]
    description: str
    state: str
    failures: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    sections: Sequence[Section]
    commands: Sequence[str]
    files: Sequence[tuple[str, str]]
    environment: Sequence[tuple[str, str]]


_STYLE = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .4rem; }
p.answer { font-size: 1.12rem; line-height: 1.45; margin: .4rem 0 .8rem; }
p.state, p.note, figcaption { color: var(--muted); font-size: .88rem; }
p.note { margin-top: .5rem; }
ul.found { padding-left: 1.1rem; } ul.found li { margin: .35rem 0; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .45rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; min-width: 7rem; max-width: 20rem; overflow-wrap: anywhere; }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
td span { white-space: nowrap; }
figure { margin: 1.4rem 0; }
figure svg { width: 100%; height: auto; font-family: inherit; }
figure .narrow { display: none; }
@media (max-width: 40rem) {
  figure .narrow { display: block; } figure .wide { display: none; }
  thead { display: none; } table, tbody, tr, td { display: block; }
  th:first-child, td:first-child { max-width: none; font-weight: 600; border-bottom: 0; padding-top: .7rem; }
  td { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 0; padding: .12rem 0; }
  td[data-column]::before { content: attr(data-column); color: var(--muted); text-align: left; }
  tr { border-bottom: 1px solid var(--line); padding-bottom: .5rem; }
}
pre { background: var(--panel); padding: .8rem 1rem; overflow-x: auto; border-radius: .4rem; font-size: .84rem; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, monospace; }
details { margin: .8rem 0; } summary { cursor: pointer; }
dl { display: grid; grid-template-columns: fit-content(50%) 1fr; gap: .2rem 1rem; font-size: .88rem; margin: .5rem 0; }
dt { color: var(--muted); overflow-wrap: anywhere; } dd { margin: 0; overflow-wrap: anywhere; }
.failed { border-left: 4px solid var(--series-2); padding: .1rem 1rem; background: var(--panel); }
header { display: flex; justify-content: space-between; gap: 1rem; align-items: start; }
button { font: inherit; font-size: .8rem; color: var(--muted); background: var(--panel); cursor: pointer; }
button { border: 1px solid var(--line); border-radius: .4rem; padding: .25rem .6rem; }
@media print { button { display: none; } }
"""

_SCRIPT = """
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
"""


def render(report: Report) -> str:
    """The page; the same bytes from the same report."""
    sections = "\n".join(_section(section, place) for place, section in enumerate(report.sections))
    environment = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.environment)
    commands = "\n".join(report.commands)
    files = "\n".join(
        f"<details><summary>{escape(name)}</summary><pre><code>{escape(text)}</code></pre></details>"
        for name, text in report.files
    )
    answers = "".join(f'<p class="answer">{escape(one)}</p>' for one in report.answers)
    description = f"<p>{escape(report.description)}</p>" if report.description else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(report.title)}</title>
<style>
{theme.variables()}
{_STYLE}</style>
</head>
<body>
<main>
<header><h1>{escape(report.title)}</h1><button id="theme" type="button">light / dark</button></header>
{answers}
{description}
<p class="state">{escape(report.state)}</p>
{_failures(report.failures)}
{_warnings(report.warnings)}
{sections}
<h2>Run it again</h2>
<pre><code>{escape(commands)}</code></pre>
{files}
<h2>What it ran on</h2>
<dl>{environment}</dl>
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _section(section: Section, place: int) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"] if section.title else []
    if section.sentences:
        parts.append('<ul class="found">' + "".join(f"<li>{escape(one)}</li>" for one in section.sentences) + "</ul>")
    parts += [f"<h3>{escape(title)}</h3>\n{_table(table)}" for title, table in section.tables]
    parts += [_figure(figure, f"g{place}-") for figure in section.figures]
    return f"<section>{''.join(parts)}</section>"


def _table(table: TextTable) -> str:
    head = "".join(f'<th scope="col">{_breakable(name)}</th>' for name in table.columns)
    body = "".join(f"<tr>{_cells(table.columns, row)}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _breakable(title: str) -> str:
    """A title of a column, which may be the long name of a setting."""
    return re.sub("([._])", r"\1<wbr>", escape(title))


def _cells(columns: Sequence[str], row: Sequence[str]) -> str:
    """Each with the title of its column, which stands before it on a phone; lines break between what belongs together."""
    first, *others = row
    cells = [f"<td>{escape(first)}</td>"]
    for name, cell in zip(columns[1:], others, strict=True):
        cells.append(f'<td data-column="{escape(name, quote=True)}"><div>{_cell(cell)}</div></td>')
    return "".join(cells)


def _cell(text: str) -> str:
    """Numbers stay on one line each; sentences do not."""
    parts = text.split(", ")
    if max(map(len, parts)) > _SHORT:
        return escape(text)
    return ", ".join(f"<span>{escape(part)}</span>" for part in parts)


def _figure(figure: NamedFigure, prefix: str) -> str:
    """A figure in two widths, of which CSS shows one; ids are made unique, because all share a page."""
    images = []
    for width, name in ((WIDE, "wide"), (NARROW, "narrow")):
        image = themed_svg(figure, width, f"{prefix}{figure.name}-{name}-")
        images.append(f'<div class="{name}" role="img" aria-label="{escape(figure.text, quote=True)}">{image}</div>')
    return f"<figure><h3>{escape(figure.title)}</h3>{''.join(images)}</figure>"


def themed_svg(figure: NamedFigure, width: float, prefix: str) -> str:
    """A figure whose colours and ids are the page's."""
    image = theme.themed(figures.svg(figure.draw, width))
    for quoted, new in (
        ('id="', f'id="{prefix}'),
        ("url(#", f"url(#{prefix}"),
        ('xlink:href="#', f'xlink:href="#{prefix}'),
    ):
        image = image.replace(quoted, new)
    return image


def _failures(failures: Sequence[tuple[str, str]]) -> str:
    if not failures:
        return ""
    rows = "".join(f"<dt>{escape(label)}</dt><dd>{escape(error)}</dd>" for label, error in failures)
    return f'<div class="failed"><p>{len(failures)} runs have failed:</p><dl>{rows}</dl></div>'


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    lines = "".join(f"<li>{escape(one)}</li>" for one in warnings)
    return f'<div class="failed"><p>What is compared differs in more than the sweep says:</p><ul>{lines}</ul></div>'
