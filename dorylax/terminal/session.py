"""Whether somebody types into this process: a notebook, or Python's prompt."""

from __future__ import annotations

import sys
from typing import Any


def notebook() -> Any:
    """IPython's display functions, where this process is the kernel of a notebook; else None."""
    shell = _shell()
    return sys.modules["IPython.display"] if hasattr(shell, "kernel") and "IPython.display" in sys.modules else None


def is_interactive() -> bool:
    """Whether what is run here are cells or lines that somebody gives, one after another."""
    return _shell() is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _shell() -> Any:
    """IPython's, where it runs: it is then loaded already."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()
