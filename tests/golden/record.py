"""Records what tests/golden compares with: `python tests/golden/record.py [runs] [snapshots] [flagship]`, or all of them.

Weights of other kinds of processors are kept where the runs are the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support import compilation

    compilation.quickly()
    compilation.in_one_context()

import pytest

from golden import cases, flagship, snapshots

CASES = {str(case) for case in cases.CASES}


def record_runs() -> None:
    """Trains every case; writes runs.json and names.json."""
    runs: dict[str, Any] = {}
    weights: dict[str, str] = {}
    names: dict[str, set[str]] = {}
    for number, case in enumerate(cases.CASES):
        with tempfile.TemporaryDirectory() as folder, cases.rounding_as_recorded():
            found = cases.fingerprint(case, Path(folder))
        weights[str(case)] = found.pop("weights")
        names.setdefault(case.model, set()).update(found.pop("names", ()))
        runs[str(case)] = found
        print(f"{number + 1}/{len(cases.CASES)} {case}", file=sys.stderr)
    before = json.loads(cases.RUNS.read_text()) if cases.RUNS.exists() else {"runs": {}, "kinds": {}}
    near = {case: {**run, "losses": pytest.approx(run["losses"], rel=1e-3)} for case, run in runs.items()}
    kept = before if before["runs"] == near else {"runs": runs, "kinds": {}}
    kinds = {**kept["kinds"], cases.kind(): weights}
    cases.RUNS.write_text(_lines({"runs": kept["runs"], "kinds": dict(sorted(kinds.items()))}))
    listed = {model: sorted(named) for model, named in names.items()}
    cases.NAMES.write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")


def record_snapshots() -> None:
    """Renders every snapshot; inputs of settings stay as they are in the files."""
    for name in snapshots.NAMES:
        file = snapshots.FOLDER / name
        with tempfile.TemporaryDirectory() as folder:
            file.write_text(snapshots.render(name, file.read_text() if file.exists() else "", Path(folder)))


def record_flagship() -> None:
    """Runs the README's sweep, whole and small, and writes its table and the list of its files."""
    for size in flagship.SIZES:
        with tempfile.TemporaryDirectory() as folder, cases.rounding_as_recorded():
            tables, files = flagship.files(size)
            table = tables[0] if len(tables) == 1 else flagship.FOLDER / cases.kind().replace(" ", "-") / f"{size}.csv"
            for file, text in zip((table, files), flagship.run(size, Path(folder)), strict=True):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)


def _lines(sections: dict[str, dict[str, Any]]) -> str:
    """JSON with a line for each case."""
    inner = [
        f"{json.dumps(key)}: {json.dumps(value) if key in CASES else _lines(value).rstrip()}"
        for key, value in sections.items()
    ]
    return "{\n" + ",\n".join(inner) + "\n}\n"


RECORDERS = {"runs": record_runs, "snapshots": record_snapshots, "flagship": record_flagship}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or RECORDERS:
        RECORDERS[chosen]()
