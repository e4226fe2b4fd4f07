"""Programs as Mermaid flowcharts: every task and every value that crosses, under the right heading."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flax import nnx

from dorylax.layers import GAT, GCN, MLP
from dorylax.program.passes import optimise
from dorylax.program.program import trace
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.view.describe import description

SPEC = DataSpec((RowSpec("vertex", (50,)),), RowSpec("vertex", (), "int32", "labels"))
MODELS: dict[str, Any] = {
    "deep": lambda: GCN(50, 16, 7, num_layers=4, dropout=0.0, rngs=nnx.Rngs(0)),
    "gat": lambda: GAT(50, 4, 7, heads=2, rngs=nnx.Rngs(0)),
    "mlp": lambda: MLP(50, 16, 7, rngs=nnx.Rngs(0)),
}


def headings(text: str) -> dict[str, list[int]]:
    """Return heading → the tasks below it."""
    found: dict[str, list[int]] = {}
    for title, body in re.findall(r'subgraph \w+ \["(.*)"\]\n((?:    .*\n)*)  end', text):
        found[title] = [int(index) for index in re.findall(r"^    task(\d+)\[", body, re.MULTILINE)]
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("passes", [False, True])
def test_every_task_and_every_value_that_crosses(name: str, passes: bool) -> None:
    traced = trace(MODELS[name](), SPEC)
    program = optimise(traced) if passes else traced
    text = program.draw()
    nodes = re.findall(r'^    task(\d+)\["(.+?)(?:<br>.*)?"\]:::(\w+)$', text, re.MULTILINE)
    assert sorted(int(index) for index, _, _ in nodes) == list(range(len(program.tasks)))
    assert all(label == f"{index} {program.label(int(index))}" for index, label, _ in nodes)
    assert {style for _, _, style in nodes} == set(re.findall(r"classDef (\w+) ", text))
    # `describe` lists for each task what it reads, and from which task.
    reads = {
        (value["from"], task["index"])
        for task in description(program, 9, 20)["tasks"]
        for value in task["reads"]
        if isinstance(value["from"], int)
    }
    arrows = re.findall(r'^  task(\d+) -->\|"\[.*\](?: \+\d+)?"\| task(\d+)$', text, re.MULTILINE)
    assert {(int(source), int(reader)) for source, reader in arrows} == reads
    assert len(arrows) == len(reads)


def test_tasks_stand_under_the_time_at_which_they_run() -> None:
    program = optimise(trace(MODELS["deep"](), SPEC))
    for heading, members in headings(program.draw()).items():
        for task in (program.tasks[index] for index in members):
            assert (heading == "once, before training") == (task.when == "once")
            assert heading != "backward" or task.phase in ("backward", "both")
            assert heading != "forward" or task.phase != "backward"
    assert len(headings(program.draw())) == 3
    assert headings(trace(MODELS["mlp"](), SPEC, loss=None).draw()).keys() == {"forward"}


def test_names_are_escaped() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return x @ params["kernel"]

    model.__name__ = 'a "b"'
    program = trace(model, SPEC, params={"kernel": nnx.Rngs(0).params.normal((50, 7))})
    assert program.draw().startswith('---\ntitle: "a \\"b\\": ')
