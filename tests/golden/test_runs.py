"""Runs give what they gave when the golden file was recorded: the same bits, the same bill, the same order of tasks.

A change that is meant to change them records the file again (`python tests/golden/record.py`) and says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from support import compilation

from golden.cases import CASES, FEW, FILE, Case, fingerprint, processor


@pytest.fixture(autouse=True, scope="module")
def compiled_as_recorded() -> Iterator[None]:
    jax.clear_caches()  # what other tests have compiled otherwise rounds otherwise
    with compilation.with_fusion():
        yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def marked(case: Case) -> Any:
    return pytest.param(case, id=str(case), marks=[] if case in FEW else [pytest.mark.exhaustive])


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_a_run_is_what_it_was(case: Case, recorded: dict[str, Any], tmp_path: Path) -> None:
    found, expected = fingerprint(case, tmp_path), recorded["runs"][str(case)]
    if processor() in recorded["weights"]:
        found["weights"] = {processor(): found["weights"]}
        expected = {**expected, "weights": {processor(): recorded["weights"][processor()][str(case)]}}
    else:  # another processor rounds otherwise; what a run does is told by its bill and its spans
        del found["weights"]
        expected = {**expected, "losses": pytest.approx(expected["losses"], rel=1e-4)}
    assert found == expected


def test_the_file_has_each_case_and_no_other(recorded: dict[str, Any]) -> None:
    names = {str(case) for case in CASES}
    assert recorded["runs"].keys() == names
    assert all(hashes.keys() == names for hashes in recorded["weights"].values())
    assert len({run.get("spans", name) for name, run in recorded["runs"].items()}) > len(CASES) // 2
