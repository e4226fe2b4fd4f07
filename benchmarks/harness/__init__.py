"""What benchmarks share. Importing it makes `tests/support` importable, whose simulated and lost hosts they run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
