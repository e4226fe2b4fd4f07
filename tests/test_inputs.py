"""What users give as data: every row of the table in `support.input_kinds`, at the API and on the command line.

`python tests/test_inputs.py` writes docs/inputs.md, the page of the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.input_kinds import COMMANDS, GROUPS, Command, Kind, V, X, Y, page

from dorylax.cli import main
from dorylax.graph import Dataset, Graph, GraphError

PAGE = Path(__file__).parent.parent / "docs" / "inputs.md"
KINDS = [pytest.param(kind, id=f"{group}: {kind.what}") for group, kinds in GROUPS.items() for kind in kinds]


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


@pytest.mark.parametrize("kind", KINDS)
def test_it_works_or_says_exactly_why_not(kind: Kind) -> None:
    given = kind.given()
    if kind.line is not None:
        with pytest.raises(GraphError) as caught:
            _made(given)
        assert str(caught.value) == kind.line
        return
    assert kind.becomes
    data = _made(given)
    for attribute, expected in kind.becomes.items():
        _assert_is(getattr(data, attribute), expected)


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.what)
def test_the_command_line_works_or_prints_exactly_why_not(
    kind: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if kind.write is not None:
        kind.write(tmp_path)
    status = main(["train", "--model", "mlp", "--epochs", "1", "--no-save", "--json", *kind.words])
    out, err = capsys.readouterr()
    if kind.line is None:
        assert (status, err) == (0, "")
    else:
        assert (status, out) == (2, "")
        assert err.replace(f"{tmp_path}/", "") == f"error: {kind.line}\n"


def test_there_are_enough_kinds_of_each() -> None:
    assert len(KINDS) >= 60
    assert len(COMMANDS) >= 40


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == page(), "python tests/test_inputs.py writes the page anew"


if __name__ == "__main__":
    PAGE.write_text(page())
