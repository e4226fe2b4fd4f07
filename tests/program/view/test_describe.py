"""The table and its plain values, on a small convolution and on attention."""

from __future__ import annotations

import json
import re
from typing import Any

import jax
import pytest
from flax import nnx

from dorylax.layers import GAT, GCN, GIN
from dorylax.ops import gather
from dorylax.program.passes import PASSES, optimise
from dorylax.program.program import Program, trace
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.view.cost import is_gather
from dorylax.program.view.describe import describe, description, quantity

SPEC = DataSpec(
    (RowSpec("vertex", (50,), name="features"),),
    RowSpec("vertex", (), "int32", "labels"),
    self_loops="none",
    symmetric=True,
    num_vertices=1000,
    num_edges=10_000,
)


@pytest.fixture(scope="module")
def gcn() -> Program:
    """Two layers of widths 50, 16 and 7 without dropout, as traced."""
    return trace(GCN(50, 16, 7, dropout=0.0, rngs=nnx.Rngs(0)), SPEC)


@pytest.fixture(scope="module")
def optimised(gcn: Program) -> Program:
    return optimise(gcn)


@pytest.fixture(scope="module")
def gat() -> Program:
    return trace(GAT(50, 4, 7, heads=2, rngs=nnx.Rngs(0)), SPEC)


def columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def lines_with(text: str, word: str) -> list[list[str]]:
    return [columns(line) for line in text.splitlines() if word in columns(line)]


def test_head_and_columns(gcn: Program, optimised: Program) -> None:
    lines = describe(gcn).splitlines()
    assert lines[0] == f"GCN: {len(gcn.tasks)} tasks on n = 1,000 vertices, e = 10,000 edges"
    assert lines[1] == "passes: none"
    names = ["#", "task", "operator", "when", "where", "reads", "writes", "FLOPs", "gathered", "shipped"]
    assert lines[3].split() == names
    assert describe(optimised).splitlines()[1] == f"passes: {', '.join(PASSES)}"


def test_rows_of_gathers(gcn: Program) -> None:
    """Each entry reads a row of 4-byte numbers and a 4-byte index."""
    text = describe(gcn)
    forward, backward = lines_with(text, "GA"), lines_with(text, "∇GA")
    assert [row[1:] for row in forward] == [
        ["GA", "gather_sum in", "epoch", "graph server", "[n,1,16]", "[n,1,16]", "160 k", "680 kB", "–"],
        ["GA", "gather_sum in", "epoch", "graph server", "[n,1,7]", "[n,1,7]", "70.0 k", "320 kB", "–"],
    ]
    assert [row[2] for row in backward] == ["gather_sum out"] * 2
    assert [row[5] for row in backward] == ["[n,1,7]", "[n,1,16]"]
    assert text.splitlines()[-1].endswith("graph operators: 2 forward, 2 backward")
    assert text.splitlines()[-2].startswith("once:              0 FLOPs,      0 B gathered,      0 B shipped")


def test_after_the_passes_one_gather_each_way(optimised: Program) -> None:
    text = describe(optimised)
    rows = lines_with(text, "gather_sum in")
    assert sorted(row[3] for row in rows) == ["epoch", "once"]
    assert next(row for row in rows if row[3] == "epoch")[5] == "[n,1,7]"
    assert text.splitlines()[-1].endswith("graph operators: 1 forward, 1 backward")
    assert text.splitlines()[-2].endswith("graph operators: 1 forward, 0 backward")
    loss = [row for row in map(columns, text.splitlines()) if len(row) > 2 and "loss" in row[2]]
    assert [row[1] for row in loss] == ["AV+∇AV"]


def test_counting_is_shown_but_is_no_gather(optimised: Program) -> None:
    (row,) = lines_with(describe(optimised), "count")
    assert row[2:5] == ["degrees in", "once", "graph server"]
    assert not is_gather(optimised.tasks[int(row[0])])


def test_labels_of_attention(gat: Program) -> None:
    tasks = description(gat, 100, 900)["tasks"]
    found = {(task["task"], task["operator"]) for task in tasks}
    assert {
        ("SC", "expand"),
        ("AE", "edge_softmax"),
        ("AE", "elementwise"),
        ("GA", "gather_weighted"),
        ("∇SC", "edge_dot"),
        ("∇GA", "collect"),
        ("∇GA", "gather_weighted"),
        ("∇AE", "elementwise"),
        ("begin", ""),
        ("end", ""),
    } <= found
    assert any(label == "AE" and operator == "random" for label, operator in found)
    assert any(label == "AV" and operator.startswith("random, 1 product") for label, operator in found)
    assert "both" not in {task["phase"] for task in tasks}


def test_it_is_plain_text_of_120_columns(gat: Program) -> None:
    for program in (gat, optimise(gat), trace(GIN(50, 16, 7, norm="layer", rngs=nnx.Rngs(0)), SPEC)):
        text = describe(program)
        assert max(map(len, text.splitlines())) <= 120
        assert "\x1b" not in text
        assert all(line == line.rstrip() for line in text.splitlines())
        # A task per row, in order: its number, then its name.
        numbers = [int(match[1]) for match in re.finditer(r"^ *(\d+)  \S", text, re.MULTILINE)]
        assert numbers == list(range(len(program.tasks)))


def test_description(optimised: Program) -> None:
    content = description(optimised)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert list(content) == ["version", "model", "num_vertices", "num_edges", "passes", "tasks", "totals"]
    assert content["version"] == 1
    assert (content["model"], content["num_vertices"], content["num_edges"]) == ("GCN", 1000, 10_000)
    numbers = ["flops", "gathered_bytes", "row_bytes_in", "row_bytes_out", "parameter_bytes", "shipped_bytes"]
    types: dict[str, Any] = {
        **dict.fromkeys(["index", "level", "equations", *numbers], int),
        **dict.fromkeys(["task", "kind", "operator", "when", "where", "phase"], str),
        **dict.fromkeys(["direction", "space"], (str, type(None))),
        **dict.fromkeys(["reads", "writes"], list),
    }
    for task in content["tasks"]:
        assert task.keys() == types.keys()
        assert all(isinstance(task[name], kind) for name, kind in types.items())
        assert all(value.keys() == {"shape", "dtype", "from"} for value in task["reads"])
        assert all(value.keys() == {"shape", "dtype"} for value in task["writes"])
    for when in ("once", "epoch"):
        totals = content["totals"][when]
        assert totals["flops"] == sum(task["flops"] for task in content["tasks"] if task["when"] == when)
    gather = next(task for task in content["tasks"] if task["operator"] == "gather_sum" and task["when"] == "epoch")
    (read,) = gather["reads"]
    assert (read["shape"], read["dtype"]) == (["n", 1, 7], "float32")
    assert content["tasks"][read["from"]]["task"].startswith("AV")


def test_where_values_come_from(gcn: Program) -> None:
    tasks = description(gcn)["tasks"]
    origins = {value["from"] for task in tasks for value in task["reads"]}
    assert {"rows features", "labels", "weights", "loss_scale", "param convs/0/kernel"} <= origins
    for task in tasks:
        earlier = [value["from"] for value in task["reads"] if isinstance(value["from"], int)]
        assert all(origin < task["index"] for origin in earlier)


def test_a_long_list_of_shapes_is_cut() -> None:
    params = {str(width): jax.ShapeDtypeStruct((50, width), "float32") for width in range(2, 12)}

    def model(params: Any, graph: Any, x: Any) -> Any:
        return gather(graph, sum((x @ kernel).sum(-1, keepdims=True) for kernel in params.values()))

    text = describe(trace(model, SPEC, params=params, loss=lambda out, labels: out[:, 0] * labels, metrics=None))
    assert "+7" in text  # x, labels, weights and two kernels are listed


def test_sizes(gcn: Program) -> None:
    assert "n = 5 vertices, e = 7 edges" in gcn.describe(5, 7)
    with pytest.raises(ValueError, match="num_edges must be ≥ 0, got -1"):
        describe(gcn, 5, -1)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (999, "999"), (1000, "1.00 k"), (12_345, "12.3 k"), (123_456, "123 k"), (999_499, "999 k"),
        (999_500, "1.00 M"), (2 * 10**9, "2.00 G"), (10**18, "1.00 E"), (10**22, "1.00e+04 E"),
    ],
)  # fmt: skip
def test_quantities(number: int, text: str) -> None:
    assert quantity(number) == text
