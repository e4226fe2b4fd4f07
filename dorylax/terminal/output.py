"""How results are printed: tables for people, one JSON object for programs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

_WIDTH = 200
"""At least, where the output is no terminal, for titles and notes."""


def print_table(table: Table) -> None:
    """Prints a table whole: where the output is no terminal, lines are as long as they need to be."""
    console = Console()
    if not console.is_terminal:
        wide = Console(width=10_000)
        console = Console(width=max(_WIDTH, wide.measure(table).maximum))
    console.print(table)


def print_json(content: Mapping[str, Any]) -> None:
    """Prints one JSON object, strict: no NaN."""
    click.echo(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))


def print_error(text: str) -> None:
    """Prints to standard error. Where that is gone, a closed terminal say, nobody is told, and the work goes on."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def percent(value: float | None) -> str:
    """A fraction as `81.5 %`."""
    return "–" if value is None else f"{100 * value:.1f} %"
