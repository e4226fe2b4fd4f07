"""`python -m dorylax` is the `dorylax` command."""

from __future__ import annotations

import sys

from dorylax.cli import main

if __name__ == "__main__":
    sys.exit(main())
