"""The list of planted faults fits this checkout. `benchmarks/mutation.py` runs the tests that it names."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from harness.planted import Fault, PlantedFaultError, planted_faults

ROOT = Path(__file__).resolve().parents[2]
FAULTS = planted_faults()


def problems(fault: Fault) -> list[str]:
    """Reasons why a fault cannot be planted, or why no test can kill it."""
    path = ROOT / fault.file
    if not path.is_file():
        return [f"{fault.name}: there is no file {fault.file}"]
    try:
        ast.parse(fault.applied(path.read_text(encoding="utf-8")))
    except (PlantedFaultError, SyntaxError) as error:
        return [f"{fault.name}: {error}"]
    found = [] if fault.killed_by else [f"{fault.name}: killed_by names no test"]
    for test in fault.killed_by:
        file, *names = test.partition("[")[0].split("::")
        text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).is_file() else ""
        if not names or any(f" {name}(" not in text and f"class {name}:" not in text for name in names):
            found.append(f"{fault.name}: there is no test {test}")
    return found


@pytest.mark.core  # a change of any file can make a fault stale
def test_every_fault_can_be_planted_and_names_tests() -> None:
    assert [problem for fault in FAULTS for problem in problems(fault)] == []


def test_the_list_covers_every_room() -> None:
    assert len(FAULTS) >= 60
    assert all(fault.name.startswith(f"{fault.room}-") for fault in FAULTS)
    assert len({fault.behaviour for fault in FAULTS}) == len(FAULTS)
