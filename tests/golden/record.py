"""Records runs.json: `python tests/golden/record.py`.

Hashes of the weights of other processors are kept where the runs are the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax

from golden.cases import CASES, FILE, fingerprint, processor

jax.config.update("jax_disable_most_optimizations", True)


def main() -> None:
    """Trains every case and writes the file."""
    runs, weights = {}, {}
    for number, case in enumerate(CASES):
        with tempfile.TemporaryDirectory() as folder:
            found = fingerprint(case, Path(folder))
        weights[str(case)] = found.pop("weights")
        runs[str(case)] = found
        print(f"{number + 1}/{len(CASES)} {case}", file=sys.stderr)
    before = json.loads(FILE.read_text()) if FILE.exists() else {"runs": None, "weights": {}}
    others = before["weights"] if before["runs"] == runs else {}
    record = {"runs": runs, "weights": {**others, processor(): weights}}
    FILE.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
