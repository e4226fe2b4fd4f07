"""docs/notebook.ipynb runs as it stands, and shows what it gives."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

PATH = Path(__file__).parent.parent / "docs" / "notebook.ipynb"
MOST = 200_000
"""Bytes."""


def shape_of(cell: Any) -> list[str]:
    """What a cell has left behind, without spaces and numbers, which differ from machine to machine."""
    found = []
    for output in cell.outputs:
        data = output.get("data", {})
        text = output.get("text", data.get("text/plain", ""))
        words = re.sub(r"[-+]?\d[\d.]*(e[-+]?\d+)?|\bm?s(?=/epoch)", "#", text)
        found.append(" ".join([output.output_type, *sorted(data), re.sub(r"\s+", "", words)]))
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
def test_the_notebook_runs_and_shows_what_it_gives(tmp_path: Path) -> None:
    stored = nbformat.read(PATH, as_version=4)
    fresh = copy.deepcopy(stored)
    NotebookClient(fresh, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for there, here in zip(stored.cells, fresh.cells, strict=True):
        if here.cell_type == "code":
            assert shape_of(here) == shape_of(there), here.source
    shown = "\n".join(text for cell in fresh.cells if cell.cell_type == "code" for text in shape_of(cell))
    assert "image/png" in shown  # curves
    assert "interruptedafter#of#epochs;thisistheresultsofar.Togoon:fit(resume=True)" in shown
    assert "('signal',#)" in shown
    assert "(#,True)" in shown  # gone on, to the same bits
    assert "chooseanotherrundirectory,suchas…/run#" in shown
    assert not list(tmp_path.iterdir())


def test_the_notebook_is_small() -> None:
    assert PATH.stat().st_size <= MOST
