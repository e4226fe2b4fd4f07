"""`dorylax` with one more size of `communities`: a share of the vertices and edges of another, on average as dense.

python benchmarks/harness/scaled_size.py reddit-large 0.5 train --data communities --set data.size=reddit-large-0.5
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path


def name_of(size: str, scale: float) -> str:
    """What a size is called that has this share of another's vertices and edges."""
    return size if scale == 1 else f"{size}-{scale:g}"


def program(size: str, scale: float) -> list[str]:
    """The words that begin the command: `dorylax` itself, if it has the size."""
    return ["-m", "dorylax"] if scale == 1 else [str(Path(__file__)), size, str(scale)]


def main(size: str, scale: float, words: list[str]) -> int:
    """Runs a command of `dorylax`."""
    from dorylax.cli import main as dorylax
    from dorylax.graph.datasets.communities import SIZES

    whole = SIZES[size]
    vertices, pairs = round(scale * whole.num_vertices), round(scale * whole.num_edges / 2)
    SIZES[name_of(size, scale)] = dataclasses.replace(whole, num_vertices=vertices, num_edges=2 * pairs)
    return dorylax(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
