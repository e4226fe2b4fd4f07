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
