"""How results are printed: tables for people, one JSON object for programs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from dorylax.durable import json_text
from dorylax.settings.errors import CONTROL

_WIDTH = 200
"""At least, where the output is no terminal, for titles and notes."""


def print_table(table: Table, width: int | None = None) -> None:
    """Print a whole table: outside terminals, lines are as long as necessary. Brackets in names are no markup.

    Args:
        table: The table.
        width: Most columns that it takes; None for as many as it needs.
    """
    console = Console(markup=False, emoji=False)
    if width is not None:
        console.width = min(width, console.width) if console.is_terminal else width
    elif not console.is_terminal:
        console.width = 10_000
        console.width = max(_WIDTH, console.measure(table).maximum)
    console.print(table)


def print_json(content: Mapping[str, Any]) -> None:
    """Prints one JSON object, strict: no NaN."""
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
