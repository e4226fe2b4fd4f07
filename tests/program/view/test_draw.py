"""Drawings of programs: well-formed, complete, and nothing on top of anything else."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from flax import nnx

from dorylax.layers import GAT, GCN, MLP, GraphSAGE
from dorylax.program.passes import optimise
from dorylax.program.program import Program, trace
from dorylax.program.tasks.label import task_label
from dorylax.program.tracing.spec import DataSpec, RowSpec
from dorylax.program.view import svg
from dorylax.program.view.arrangement import arrange
from dorylax.program.view.boxes import BOX_HEIGHT, BOX_WIDTH
from dorylax.program.view.describe import crossing_values, sources
from dorylax.program.view.draw import draw

SPEC = DataSpec((RowSpec("vertex", (50,)),), RowSpec("vertex", (), "int32", "labels"))
MODELS: dict[str, Any] = {
    "gcn": lambda: GCN(50, 16, 7, rngs=nnx.Rngs(0)),
    "deep": lambda: GCN(50, 16, 7, num_layers=4, dropout=0.0, rngs=nnx.Rngs(0)),
    "gat": lambda: GAT(50, 4, 7, heads=2, rngs=nnx.Rngs(0)),
    "sage": lambda: GraphSAGE(50, 16, 7, aggregation="max", rngs=nnx.Rngs(0)),
    "mlp": lambda: MLP(50, 16, 7, rngs=nnx.Rngs(0)),
}
NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", params=[(name, passes) for name in MODELS for passes in (False, True)], ids=str)
def program(request: pytest.FixtureRequest) -> Program:
    name, passes = request.param
    traced = trace(MODELS[name](), SPEC)
    return optimise(traced) if passes else traced


def areas(root: ET.Element) -> tuple[list[Any], list[Any]]:
    """Rectangles (left, top, right, bottom) of the boxes, and of all text outside of them."""
    boxes, texts = [], []
    sizes = {name: float(size) for name, size in re.findall(r"\.(\w+) \{ font-size: (\d+)px", svg.STYLE)}
    inside = {id(text) for group in root.iter(f"{NAMESPACE}g") if group.get("class") == "task" for text in group}
    for rect in root.iter(f"{NAMESPACE}rect"):
        if rect.get("class", "").startswith("box"):
            x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))  # type: ignore[arg-type]
            boxes.append((x, y, x + width, y + height))
    for text in root.iter(f"{NAMESPACE}text"):
        if id(text) not in inside:
            x, y, size = float(text.get("x", "")), float(text.get("y", "")), sizes[text.get("class", "")]
            # Characters of common sans-serif fonts are 0.55 em wide on average.
            wide = 0.55 * size * len(text.text or "")
            left = x - wide if text.get("text-anchor") == "end" else x
            texts.append((left, y - 0.75 * size, left + wide, y + 0.2 * size))
    return boxes, texts


def meet(a: Any, b: Any) -> bool:
    return bool(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])


def test_it_is_xml_with_a_box_for_every_task(program: Program) -> None:
    root = ET.fromstring(draw(program))
    assert root.tag == f"{NAMESPACE}svg"
    ids = [group.get("id") for group in root.iter(f"{NAMESPACE}g") if group.get("class") == "task"]
    assert ids == [f"task-{k}" for k in range(len(program.tasks))]
    names = [text.text for text in root.iter(f"{NAMESPACE}text") if text.get("class") == "name"]
    assert names == [f"{k} {task_label(program, k)}" for k in range(len(program.tasks))]


def test_nothing_overlaps(program: Program) -> None:
    root = ET.fromstring(draw(program))
    boxes, texts = areas(root)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for area in (*boxes, *texts):
        assert area[0] >= 0
        assert area[1] >= 0
        assert area[2] <= width
        assert area[3] <= height
    assert not [pair for pair in itertools.combinations([*boxes, *texts], 2) if meet(*pair)]


def test_text_in_boxes_fits(program: Program) -> None:
    root = ET.fromstring(draw(program))
    for group in root.iter(f"{NAMESPACE}g"):
        if group.get("class") == "task":
            first, *others = (text for text in group.iter(f"{NAMESPACE}text"))
            sizes = {"name": 13, "where": 10, "what": 11}
            widths = {
                text.get("class"): 0.55 * sizes[text.get("class", "")] * len(text.text or "")
                for text in (first, *others)
            }
            assert widths["name"] + widths.get("where", 0) < BOX_WIDTH - 18
            assert widths["what"] < BOX_WIDTH - 20


def test_every_value_that_crosses_is_drawn_once(program: Program) -> None:
    layout = arrange(program, 0.0)
    drawn = [(line.source, line.target, line.values) for line in layout.lines]
    drawn += [(net.source, branch.target, branch.values) for net in layout.nets for branch in net.branches]
    home = sources(program)
    expected = {
        (home[var], k, var) for k in range(len(program.tasks)) for var in crossing_values(program, k)[0] if var in home
    }
    assert {(a, b, var) for a, b, values in drawn for var in values} == expected
    assert len({(a, b) for a, b, _ in drawn}) == len(drawn)


def segments(layout: Layout) -> list[tuple[int, Any, Any]]:
    """(net, one end, other end) of all straight pieces."""
    return [
        (k, *pair)
        for k, net in enumerate(layout.nets)
        for branch in net.branches
        for pair in itertools.pairwise(branch.points)
    ]


def test_lines_keep_clear_of_boxes_and_of_each_other(program: Program) -> None:
    layout = arrange(program, 0.0)
    boxes = [(box.x, box.y, box.x + BOX_WIDTH, box.y + BOX_HEIGHT) for box in layout.boxes]
    pieces = segments(layout)
    for _, (x0, y0), (x1, y1) in pieces:
        assert x0 == x1 or y0 == y1
        area = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        assert not any(meet(area, box) for box in boxes)
    for (net, a, b), (other, c, d) in itertools.combinations(pieces, 2):
        for axis in (0, 1):
            if net != other and a[axis] == b[axis] == c[axis] == d[axis]:
                along = 1 - axis
                assert max(a[along], b[along]) <= min(c[along], d[along]) or max(c[along], d[along]) <= min(
                    a[along], b[along]
                )
    for line in layout.lines:
        top, bottom = sorted((line.start[1], line.end[1]))
        assert not any(box[1] < bottom and top < box[3] for box in boxes)


def test_what_runs_once_is_set_apart() -> None:
    program = optimise(trace(MODELS["deep"](), SPEC))
    layout = arrange(program, 0.0)
    assert layout.once_bottom is not None
    for box in layout.boxes:
        assert (box.y < layout.once_bottom) == (program.tasks[box.index].when == "once")
    assert "once, before training" in draw(program)
    plain = trace(MODELS["deep"](), SPEC)
    assert arrange(plain, 0.0).once_bottom is None
    assert "once, before training" not in draw(plain)


def test_forward_left_backward_right() -> None:
    program = optimise(trace(MODELS["gcn"](), SPEC))
    boxes = arrange(program, 0.0).boxes
    rights = {
        task.phase: {boxes[k].right for k, t in enumerate(program.tasks) if t.phase == task.phase}
        for task in program.tasks
    }
    assert rights == {"forward": {False}, "both": {False}, "backward": {True}}
    widest = max(box.x for box in boxes if not box.right)
    assert all(box.x > widest + BOX_WIDTH for box in boxes if box.right)


def test_a_forward_pass_alone() -> None:
    program = trace(MODELS["gcn"](), SPEC, loss=None)
    text = draw(program)
    ET.fromstring(text)
    assert "backward ↑" not in text


def test_names_are_escaped() -> None:
    def model(params: Any, graph: Any, x: Any) -> Any:
        return x @ params["kernel"]

    model.__name__ = "<a&b>"
    program = trace(model, SPEC, params={"kernel": nnx.Rngs(0).params.normal((50, 7))})
    root = ET.fromstring(draw(program))
    assert root.findtext(f"{NAMESPACE}title") == program.traced.name


def test_edges_are_labelled_with_what_crosses() -> None:
    root = ET.fromstring(draw(optimise(trace(MODELS["deep"](), SPEC))))
    labels = [text.text for text in root.iter(f"{NAMESPACE}text") if text.get("class") == "value"]
    assert labels.count("[n,1,16]") >= 4
    titles = [title.text or "" for title in root.iter(f"{NAMESPACE}title")]
    assert any(re.match(r"\d+ GA → \d+ AV: float32\[n,1,16\]", title) for title in titles)
