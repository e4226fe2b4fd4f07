"""The command line. One module per command; `app` puts them together.

Modules of commands import JAX, and whatever else takes long to load, only inside commands, so that help and wrong options
answer at once. Modules that commands import in this way have their imports at their head.
"""

from __future__ import annotations

from dorylax.cli.app import main

__all__ = ["main"]
