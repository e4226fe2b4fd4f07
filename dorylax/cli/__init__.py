"""The command line. One module per command; `app` registers them.

Command modules import JAX and other slow modules only inside commands, so that help and errors about options appear
immediately. Modules imported in this way have ordinary imports at the top.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; see `dorylax.terminal.run.run`."""
    try:
        from dorylax.cli import app
    except KeyboardInterrupt:  # the usual handler is not imported yet
        print("\ninterrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return app.main(arguments)
