"""Printed results: tables for people, one JSON object for programs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dorylax.settings.errors import CONTROL
from dorylax.store.durable import json_text

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH = 200
"""Least width outside terminals, for titles and notes."""


def print_table(table: Table, width: int | None = None) -> None:
    """Print a whole table: outside terminals, lines are as long as necessary. Brackets in names are no markup.

    Args:
        table: The table.
        width: Most columns that it takes; None for as many as it needs.
    """
    from rich.console import Console  # which takes a third of the time of `dorylax --help`

    console = Console(markup=False, emoji=False)
    if width is not None:
        console.width = min(width, console.width) if console.is_terminal else width
    elif not console.is_terminal:
        console.width = 10_000
        console.width = max(_WIDTH, console.measure(table).maximum)
    console.print(table)


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    *,
    left: Collection[str] | None = None,
    bold: Collection[int] = (),
    total: Sequence[str] | None = None,
) -> None:
    """Print a table of text.

    Args:
        columns: Titles of the columns.
        rows: Cells of each row.
        title: Title of the table.
        left: Columns on the left [default: the first]; numbers are on the right.
        bold: Numbers of rows in bold type.
        total: A bold row below a line, such as the sums.
    """
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    left = columns[:1] if left is None else left
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(*row, style="bold" if number in bold else None)
    if total is not None:
        table.add_section()
        table.add_row(*total, style="bold")
    print_table(table)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object, strict: no NaN."""
    click.echo(json_text(content, getattr(sys.stdout, "encoding", None) or "utf-8"))


def print_error(text: str) -> None:
    """Print to standard error, with control characters escaped; a closed terminal does not stop the work."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(printable(text), err=True)


def printable(text: str) -> str:
    """Escape control characters."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def percent(value: float | None) -> str:
    """A fraction as `81.5 %`."""
    return "–" if value is None else f"{100 * value:.1f} %"
