"""The command line. One module per command; `app` joins them and turns errors into one line and an exit code.

Modules here import JAX only inside commands, so that help and wrong options answer at once.
"""

from __future__ import annotations

from dorylax.cli.app import main

__all__ = ["main"]
