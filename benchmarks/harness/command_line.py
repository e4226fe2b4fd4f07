"""The command line of a benchmark, and the file that its figures are written to."""

from __future__ import annotations

import argparse
import json
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
