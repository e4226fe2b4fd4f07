"""Fuzzed bytes for everything that reads what came from elsewhere: it raises our errors alone, and mistakes nothing.

Coverage-guided where atheris is installed (`pip install ".[fuzz]"`), each reader in a process of its own. `corpus/` has what
earlier runs found worth beginning with; a new reader gets its file there by `python -m harness.fuzz … --pack FILE`.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hostile.base import Line

READERS = {
    "event": 250_000,
    "answer": 150_000,
    "message": 200_000,
    "invocation": 200_000,
    "configuration": 30_000,
    "sweep": 20_000,
    "archive": 100_000,
    "members": 60_000,
    "partition": 100_000,
    "metrics": 60_000,
    "run": 20_000,
    "checkpoint": 30_000,
}
"""Their names (`harness.readers`), and how many inputs each is given at full size."""

CORPUS = Path(__file__).resolve().parents[1] / "corpus"


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """A line for each reader."""
    for name, runs in READERS.items():
        yield fuzzed(name, folder / name, 40 if tiny else runs, guided=not tiny)


def fuzzed(name: str, folder: Path, runs: int, *, guided: bool) -> Line:
    """Fuzzes one reader; what it covered stays in the folder."""
    unpack(name, folder / "corpus")
    command = [sys.executable, "-m", "harness.fuzz", name, str(folder), "--runs", str(runs)]
    done = subprocess.run(
        [*command, *([] if guided else ["--unguided"])], cwd=CORPUS.parent, capture_output=True, text=True, check=False
    )
    try:
        found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    except OSError:
        print(done.stderr[-2000:], file=sys.stderr)
        return Line(f"{name}: its process died ({done.returncode})", 1, 0, crashed=1)
    wrong = {"lost": 0, "crashed": 0}
    for where, fault in found["faults"].items():
        print(f"  {name}: {where}: {fault['text']}; input {fault['input'][:200]}", file=sys.stderr)
        wrong["lost" if where.startswith("NotTheSame") else "crashed"] += fault["times"]
    tried = found["tried"]
    how = "coverage-guided" if found["guided"] else "random changes"
    return Line(f"{name}, {how}", tried, tried - sum(wrong.values()), **wrong)


def unpack(name: str, folder: Path) -> None:
    """Writes the inputs that are kept of a reader into a folder, a file each."""
    folder.mkdir(parents=True)
    kept = CORPUS / f"{name}.txt"
    for k, line in enumerate(kept.read_text(encoding="ascii").split()):
        (folder / f"kept-{k}").write_bytes(base64.b64decode(line))
