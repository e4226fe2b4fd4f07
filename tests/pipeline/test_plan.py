from __future__ import annotations

import functools
from typing import Any

import pytest
from flax import nnx
from support.pipelines import OPTIONS, messy_data

from dorylax.layers import registry
from dorylax.pipeline.plan import Plan
from dorylax.pipeline.prepare import prepare
from dorylax.program import PASSES
from dorylax.program.model.flax_nnx import take_apart
from dorylax.program.rows.types import Rows
from dorylax.program.tasks.steps import Publication
from dorylax.program.tracing.spec import DataSpec


@functools.cache
def plan(model: str, *, reorder: bool = False, dropout: bool = True) -> Plan:
    data = messy_data()
    options: dict[str, Any] = dict(OPTIONS[model])
    if not dropout:
        options = {name: 0.0 if "dropout" in name else value for name, value in options.items()}
    module = registry.build(model, data.num_features, data.num_classes, options, nnx.Rngs(params=0, dropout=0))
    return prepare(
        take_apart(module), DataSpec.of(data), tuple(name for name in PASSES if reorder or name != "reorder")
    ).plan


def operators(found: Plan) -> list[tuple[str, str]]:
    return [(step.kind, step.operator.removeprefix("dorylax_")) for step in found.epoch if step.operands]


def shown(publications: tuple[Publication, ...]) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(one.direction, tuple(one.var.aval.shape[2:]), one.copied) for one in publications]


def test_gcn_pulls_both_ways_and_keeps_nothing() -> None:
    """Its backward pass needs nothing that the forward pass has read: sums are linear."""
    found = plan("gcn")
    assert operators(found) == [("gather", "gather_sum")] * 4
    assert shown(found.publications) == [
        ("in", (8,), False),
        ("in", (3,), False),
        ("out", (3,), False),
        ("out", (8,), False),
    ]
    assert [step.kind for step in found.epoch] == ["stage", "gather"] * 4 + ["stage"]
    assert not any(one.constant for one in found.publications)
    assert found.once  # degrees, for the norm
    assert found.stages_with_sums == tuple(step.index for step in found.epoch if step.label.endswith("∇AV"))


def test_reordered_gcn_sends_features_and_no_gradient_of_theirs() -> None:
    found = plan("gcn", reorder=True)
    assert shown(found.publications) == [("in", (5,), False), ("in", (3,), False), ("out", (3,), False)]


def test_largest_neighbours_are_kept_for_the_backward_pass_which_pushes() -> None:
    found = plan("sage")
    assert [pair for pair in operators(found) if pair[0] == "push"] == [("push", "select_sum")]
    (push,) = [step for step in found.epoch if step.kind == "push"]
    through = [operand for operand in push.operands if operand.publication is not None]
    assert [operand.role for operand in through] == ["own"]
    assert [one.copied for one in found.publications].count(True) == 1
    assert found.publications[through[0].publication or 0].copied
    assert {one.direction for one in found.publications} == {"in"}


def test_attention_keeps_source_rows_and_pushes_edge_gradients() -> None:
    found = plan("gat")
    copied = [number for number, one in enumerate(found.publications) if one.copied]
    again = {
        operand.publication
        for step in found.epoch
        for operand in step.operands
        if step.operator == "dorylax_edge_dot" and operand.publication is not None
    }
    assert set(copied) == again
    assert len(copied) == 2  # one of each layer
    pushes = [name for kind, name in operators(found) if kind == "push"]
    assert pushes == ["gather_weighted", "collect"] * 2
    assert any(step.space == "edge" and step.kind == "stage" for step in found.epoch)


def test_data_read_through_edges_are_published_once() -> None:
    found = plan("sage", dropout=False)
    first = found.publications[0]
    assert (first.constant, first.copied) == (True, False)
    assert not [step for step in found.epoch if 0 in step.publishes]


@pytest.mark.parametrize("model", OPTIONS)
def test_what_only_steps_before_training_read_is_of_no_use_afterwards(model: str) -> None:
    found = plan(model, dropout=False)
    read = {operand.publication for step in found.epoch for operand in step.operands}
    assert read.isdisjoint(found.publications_of_once)
    assert all(found.publications[number].constant for number in found.publications_of_once)
    for step in found.epoch:
        assert found.rows_of_once.isdisjoint(step.reads)
    assert found.rows_of_once <= found.constants


def test_a_first_layer_without_weights_of_its_own_needs_features_once() -> None:
    """Sums over neighbours of the data are the same in every epoch; SAGE reads the rows themselves, too."""
    gcn, sage = plan("gcn", dropout=False, reorder=True), plan("sage", dropout=False)
    assert (gcn.publications_of_once, sage.publications_of_once) == ((0,), (0,))
    features = gcn.publications[0].var
    assert features in gcn.rows_of_once
    traced = sage.program.traced
    (rows,) = [v for v, e in zip(traced.step.jaxpr.invars, traced.inputs, strict=True) if e.role == "rows"]
    assert rows in sage.constants - sage.rows_of_once


@pytest.mark.parametrize("model", OPTIONS)
@pytest.mark.parametrize("reorder", [False, True])
def test_every_value_is_there_when_it_is_read_and_forgotten_afterwards(model: str, reorder: bool) -> None:
    found = plan(model, reorder=reorder)
    types = found.program.analysis.types
    there = set(found.constants)
    published = {number for number, one in enumerate(found.publications) if one.constant}
    for step in found.epoch:
        through = {operand.var for operand in step.operands if operand.publication is not None}
        assert {operand.publication for operand in step.operands} - {None} <= published
        assert {var for var in step.reads if isinstance(types[var], Rows)} - through <= there
        there.update(var for var in step.writes if isinstance(types[var], Rows))
        assert set(step.publishes) == {n for n, one in enumerate(found.publications) if one.var in step.writes}
        published.update(step.publishes)
        there.difference_update(step.forget)
    assert not {var for var in there - found.constants if isinstance(types[var], Rows)}
    assert published == set(range(len(found.publications)))
