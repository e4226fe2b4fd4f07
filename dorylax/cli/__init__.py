"""The command line. One module per command; `app` puts them together.

Modules of commands import JAX, and whatever else takes long to load, only inside commands, so that help and wrong options
answer at once. Modules that commands import in this way have their imports at their head.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `dorylax.terminal.run.run`."""
    try:
        from dorylax.cli import app
    except KeyboardInterrupt:  # what usually says so is not there yet
        print("\ninterrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return app.main(arguments)
