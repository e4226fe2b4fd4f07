"""The notebooks in docs/notebooks run, and show current output."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NAMES = ["cost-before-renting", "own-layer", "quickstart", "staleness-study"]
MOST = 200_000
"""Bytes of a notebook."""


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def shape_of(cell: Any) -> list[str]:
    """Return the output of a cell without spaces and numbers, which differ between machines."""
    found = []
    for output in cell.outputs:
        data = output.get("data", {})
        text = output.get("text", data.get("text/plain", ""))
        words = re.sub(r"[-+]?\d[\d.]*(e[-+]?\d+)?|\bm?s(?=/epoch)", "#", text)
        found.append(" ".join([output.output_type, *sorted(data), re.sub(r"\s+", "", words)]))
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
def test_the_quickstart_runs_in_a_kernel_and_shows_what_it_gives(tmp_path: Path) -> None:
    stored = read("quickstart")
    fresh = copy.deepcopy(stored)
    NotebookClient(fresh, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for there, here in zip(stored.cells, fresh.cells, strict=True):
        if here.cell_type == "code":
            assert shape_of(here) == shape_of(there), here.source
    shown = "\n".join(text for cell in fresh.cells if cell.cell_type == "code" for text in shape_of(cell))
    assert "image/png" in shown  # curves
    assert "interruptedafter#of#epochs;thisistheresultsofar.Togoon:fit(resume=True)" in shown
    assert "('signal',#)" in shown
    assert "(#,True)" in shown  # resumed, to the same bits
    assert "chooseanotherrundirectory,suchas…/run#" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("cost-before-renting", ["functions: ", " US dollars"]),
        ("own-layer", ["difference of the final losses: ", "combines values of different vertices"]),
        ("staleness-study", ["results: study", "simulated time to"]),
    ],
)
def test_the_cells_run_and_print(
    name: str, printed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, because a kernel takes seconds to import JAX."""
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells, 1):
        exec(compile(cell.source, f"{name}.ipynb[{number}]", "exec"), names)
    plt.close("all")
    shown = capsys.readouterr().out
    stored = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    for text in printed:
        assert text in shown
        assert text in stored
    assert not list(tmp_path.iterdir())


def test_notebooks_are_complete_small_and_without_errors() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == NAMES
    for name in NAMES:
        assert (FOLDER / f"{name}.ipynb").stat().st_size <= MOST
        cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
        assert all(output.output_type != "error" for cell in cells for output in cell.outputs)
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
