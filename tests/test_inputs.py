"""What users give as data: every row of the table in `support.input_kinds`, at the API and on the command line.

`python tests/test_inputs.py` records the lines that refuse some (tests/golden/snapshots/inputs.txt) and writes
docs/inputs.md, the page of the same rows.
"""

from __future__ import annotations

import io
import os
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.input_kinds import (
    COMMAND_LINE,
    COMMANDS,
    GROUPS,
    RECORDED,
    Command,
    Kind,
    V,
    X,
    Y,
    page,
    refusals,
)

from dorylax.cli import main
from dorylax.graph import Dataset, Graph, GraphError

PAGE = Path(__file__).parent.parent / "docs" / "inputs.md"
KINDS: dict[str, Kind | Command] = {
    f"{group}: {kind.what}": kind
    for group, kinds in {**GROUPS, COMMAND_LINE: COMMANDS}.items()
    for kind in kinds  # type: ignore[attr-defined]
}


def _made(given: dict[str, Any]) -> Dataset:
    given = dict(given)
    size = given.pop("num_vertices", V)
    graph = Graph.from_coo(np.arange(size), np.roll(np.arange(size), -1), size)
    return Dataset(**{"name": "mine", "graph": graph, "features": X[:size], "labels": Y[:size], **given})


def _assert_is(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            _assert_is(found[name], expected[name])
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected
        assert type(found) is type(expected)


def _refusal(kind: Kind | Command) -> str | None:
    """The whole line that refuses it; where it works, what becomes of it is checked."""
    if isinstance(kind, Command):
        return _printed(kind)
    try:
        data = _made(kind.given())
    except GraphError as error:
        return str(error)
    for attribute, expected in kind.becomes.items():
        _assert_is(getattr(data, attribute), expected)
    return None


def _printed(kind: Command) -> str | None:
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(out), redirect_stderr(err):
        if kind.write is not None:
            kind.write(Path(folder))
        status = main(["train", "--model", "mlp", "--epochs", "1", "--no-save", "--json", *kind.words])
        said = err.getvalue().replace(f"{folder}{os.sep}", "")
    if status == 0:
        assert said == ""
        return None
    assert (status, out.getvalue()) == (2, "")
    assert said.startswith("error: ")
    return said.removeprefix("error: ").removesuffix("\n")


@pytest.mark.parametrize("name", KINDS)
def test_it_works_or_says_exactly_why_not(name: str) -> None:
    assert _refusal(KINDS[name]) == refusals().get(name)


def test_there_are_enough_kinds_of_each() -> None:
    assert refusals().keys() <= KINDS.keys()
    assert len(KINDS) == sum(map(len, GROUPS.values())) + len(COMMANDS) >= 160


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == page(), "python tests/test_inputs.py writes the page anew"


if __name__ == "__main__":
    lines = {name: _refusal(kind) for name, kind in KINDS.items()}
    RECORDED.write_text("".join(f"{name}\n    {line}\n" for name, line in lines.items() if line is not None))
    PAGE.write_text(page())
