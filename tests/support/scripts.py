"""Scripts run one after the other in one process, which imports what they need only once."""

from __future__ import annotations

import logging
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def here(function: Any, *arguments: Any, environment: dict[str, str] | None = None) -> Any:
    """In the place of `harness.child.in_child`: calls the function in this process."""
    os.environ.update(environment or {})
    return function(*arguments)


def run_script(script: Path, words: Sequence[str], output: Path, *, children: bool) -> int:
    """Runs a script as `python SCRIPT WORDS` would.

    Args:
        script: the file.
        words: of its command line.
        output: file for what it and its children print.
        children: whether parts that have a process of their own get one.

    Returns:
        Its exit status.
    """
    sys.argv = [str(script), *words]
    if sys.path[0] != str(script.parent):
        sys.path.insert(0, str(script.parent))
    from harness import child

    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    before, in_child, level = dict(os.environ), child.in_child, logging.getLogger("dorylax").level
    try:
        if not children:
            child.in_child = here
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        child.in_child = in_child
        logging.getLogger("dorylax").setLevel(level)
        os.environ.clear()
        os.environ.update(before)
        sys.stdout.flush()
    return 0
