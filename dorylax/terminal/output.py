"""How results are printed: tables for people, one JSON object for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table


def print_table(table: Table) -> None:
    """Prints a table whole: where the output is no terminal, lines are as long as they need to be."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def print_json(content: Mapping[str, Any]) -> None:
    """Prints one JSON object, strict: no NaN."""
    click.echo(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))


def percent(value: float | None) -> str:
    """A fraction as `81.5 %`."""
    return "–" if value is None else f"{100 * value:.1f} %"
