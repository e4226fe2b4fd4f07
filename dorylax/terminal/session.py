"""Whether a person types into this process: a notebook, or Python's prompt."""

from __future__ import annotations

import sys
from typing import Any


def notebook() -> Any:
    """Return IPython's display functions if this process is the kernel of a notebook, otherwise None."""
    shell = _shell()
    return sys.modules["IPython.display"] if hasattr(shell, "kernel") and "IPython.display" in sys.modules else None


def is_interactive() -> bool:
    """Return whether this process runs cells or lines that a person enters one after another."""
    return _shell() is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _shell() -> Any:
    """Return IPython's shell, or None; a running IPython is loaded already."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()
