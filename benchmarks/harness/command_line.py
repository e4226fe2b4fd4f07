"""The command line of a benchmark, and the files that it writes: figures as JSON, and plots."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser with `--tiny`, whose help is the script's docstring as it stands."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tiny", action="store_true", help="sizes that take seconds: shows that it runs, measures nothing"
    )
    return parser


def parsed(parser: argparse.ArgumentParser, **tiny: Any) -> argparse.Namespace:
    """The options of this process.

    Args:
        parser: of `parser_of`.
        tiny: what options are by default with `--tiny`.
    """
    if parser.parse_known_args()[0].tiny:
        parser.set_defaults(**tiny)
    return parser.parse_args()


def write_json(path: Path | None, found: Any) -> None:
    """Writes figures to a file that was asked for."""
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@contextlib.contextmanager
def plotted(path: Path, rows: int = 1, **options: Any) -> Iterator[Any]:
    """Panels below each other, or one, to draw into; the figure is written at the end.

    Args:
        path: File to write; its ending is the format.
        rows: Number of panels.
        options: Of `Figure.subplots`, and `size`, the figure's in inches.
    """
    from matplotlib.figure import Figure  # late: only for plots

    figure = Figure(options.pop("size", (7.0, 4.2)), layout="constrained")
    yield figure.subplots(rows, **options)
    figure.savefig(path, dpi=150)
