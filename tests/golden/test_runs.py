"""Runs give what they gave when they were recorded: the same bits, the same bill, the same tasks at the same times.

A change that is meant to change them records them again (`python tests/golden/record.py runs`) and says why. Renaming a task
changes names.json alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golden.cases import CASES, FEW, NAMES, RUNS, Case, fingerprint, kind, rounding_as_recorded

RECORDED: dict[str, Any] = json.loads(RUNS.read_text())
NAMED: dict[str, list[str]] = json.loads(NAMES.read_text())
UNKNOWN = (
    f"no weights are recorded for processors such as this one ({kind()}): "
    "on a commit that is right, run `python tests/golden/record.py runs flagship` and commit what it writes"
)


@pytest.fixture(autouse=True, scope="module")
def instructions() -> Iterator[None]:
    with rounding_as_recorded():
        yield


def marked(case: Case) -> Any:
    return pytest.param(case, id=str(case), marks=[] if case in FEW else [pytest.mark.exhaustive])


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_a_run_is_what_it_was(case: Case, tmp_path: Path) -> None:
    found = fingerprint(case, tmp_path)
    weights, names = found.pop("weights"), found.pop("names", [])
    expected = RECORDED["runs"][str(case)]
    assert found == {**expected, "losses": pytest.approx(expected["losses"], rel=1e-3)}
    assert set(names) <= set(NAMED[case.model])
    assert kind() in RECORDED["kinds"], UNKNOWN
    assert weights == RECORDED["kinds"][kind()][str(case)]


def test_the_file_has_each_case_and_no_other() -> None:
    names = {str(case) for case in CASES}
    assert all(section.keys() == names for section in (RECORDED["runs"], *RECORDED["kinds"].values()))
    assert len({run.get("spans", name) for name, run in RECORDED["runs"].items()}) > len(CASES) // 2
