"""Steps with normalisation folded into their gathers, and with gathered rows stored in bfloat16."""

from __future__ import annotations

import collections
import re

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax.config import RunConfig
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import load
from dorylax.graph.graph import Graph
from dorylax.layers import APPNP, GCN, GCNII, GIN, SGC, GraphSAGE
from dorylax.ops import native
from dorylax.ops.primitives.scaled import gather_scaled
from dorylax.program.jaxpr.errors import SplitError
from dorylax.trainer import Trainer
from dorylax.trainer.footprint import of_config
from dorylax.trainer.step.compiled import EpochInputs
from dorylax.trainer.step.functions import StepFunctions

ADAM = optax.adam(0.02)
V, F, C = 300, 16, 4

# A model, and how many folded gathers are hoisted, and are in the epoch forwards and backwards.
MODELS = {
    "gcn": (lambda rngs: GCN(F, 8, C, dropout=0.5, rngs=rngs), 0, 2, 2),
    "gcn, no dropout": (lambda rngs: GCN(F, 8, C, dropout=0.0, rngs=rngs), 1, 1, 1),
    "sgc": (lambda rngs: SGC(F, C, rngs=rngs), 2, 0, 0),
    "appnp": (lambda rngs: APPNP(F, 8, C, num_propagations=3, rngs=rngs), 0, 3, 3),
    "gcnii": (lambda rngs: GCNII(F, 8, C, num_layers=3, rngs=rngs), 0, 3, 3),
    "sage-mean": (lambda rngs: GraphSAGE(F, 8, C, aggregation="mean", rngs=rngs), 0, 2, 0),
    "gin": (lambda rngs: GIN(F, 8, C, dropout=0.0, train_epsilon=True, rngs=rngs), 0, 1, 1),
}


@pytest.fixture(scope="module")
def messy() -> Dataset:
    """Directed, some loops, a hub of several spans of the kernel's schedule, vertices without edges."""
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, V - 10, (2, 3000))
    sources, targets = (np.concatenate(ends) for ends in ((sources, rng.integers(0, V, 5000)), (targets, [7] * 5000)))
    sources[:20] = targets[:20]
    graph = Graph.from_coo(sources, targets, V)
    assert graph.self_loops == "some"
    masks = [np.arange(V) % 3 == k for k in range(3)]
    features, labels = rng.normal(size=(V, F)).astype(np.float32), rng.integers(0, C, V).astype(np.int32)
    return Dataset("messy", graph, features, labels, C, *masks)


@pytest.fixture(scope="module")
def tiny() -> Dataset:
    return load("communities", size="tiny")


def compiled(model, data, **options):
    """A function that gives loss and gradients of an epoch, compiled now: kernels are chosen when it runs."""
    trainer = Trainer(model, data, optimizer=ADAM, **options)
    gradient, _ = trainer._machine.choose_gradient()
    arrays, params, state = trainer._machine.arrays, trainer._parts.params, trainer._parts.state

    # Functions of their own, so that nothing is used that was lowered with another library.
    def prepared(data):
        return gradient._function.prepare(data) if gradient.passes else ()

    def epoch(*given):
        return gradient(*given)

    prepare = jax.jit(prepared).lower(arrays.run_data).compile()
    inputs = EpochInputs(trainer._parts.streams, prepare(arrays.run_data), arrays, np.uint32(0), np.uint32(1))
    step = jax.jit(epoch).lower(params, state, inputs).compile()

    def run():
        loss, gradients, _ = step(params, state, inputs._replace(kept=prepare(arrays.run_data)))
        return [loss, *jax.tree.leaves(gradients)]

    return run


def assert_close(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


@pytest.mark.parametrize("name", list(MODELS))
def test_loss_and_gradients_are_the_plain_ones(messy, name, monkeypatch):
    make = MODELS[name][0]
    plain = compiled(make(nnx.Rngs(0)), messy, optimize=False)()
    if native.status().available:
        run = compiled(make(nnx.Rngs(0)), messy)
        for instruction_set in ("avx512", "avx2", "baseline"):
            try:
                native.choose_instruction_set(instruction_set)
            except RuntimeError:
                continue
            assert_close(run(), plain)
        native.choose_instruction_set(None)
    monkeypatch.setattr(native, "_load", lambda: (None, "this test does without it"))
    assert_close(compiled(make(nnx.Rngs(0)), messy)(), plain)


def operators(model, data, **options):
    """The folded gathers of a step: how many are hoisted, and are in the epoch forwards and backwards."""
    gradient, _ = Trainer(model, data, optimizer=ADAM, **options)._machine.choose_gradient()
    function = gradient._function
    before, after = (
        [equation for equation in part.jaxpr.eqns if equation.primitive is gather_scaled.primitive]
        for part in (function._before, function._after)
    )
    directions = collections.Counter(equation.params["direction"] for equation in after)
    return (len(before), directions["in"], directions["out"]), [*before, *after]


@pytest.mark.parametrize("name", list(MODELS))
def test_as_many_are_folded_as_the_model_has(messy, name):
    make, *wanted = MODELS[name]
    assert list(operators(make(nnx.Rngs(0)), messy)[0]) == wanted


def test_loops_are_read_only_where_they_differ(messy, tiny):
    """And a mean reads none, whatever the loops."""
    read = {
        (name, data.name): {
            equation.invars[1].aval.size for equation in operators(MODELS[name][0](nnx.Rngs(0)), data)[1]
        }
        for name in ("gcn", "sage-mean")
        for data in (messy, tiny)
    }
    assert read == {
        ("gcn", "messy"): {V},
        ("gcn", tiny.name): {0},
        ("sage-mean", "messy"): {0},
        ("sage-mean", tiny.name): {0},
    }


# Rows in bfloat16


def losses(data, **options):
    model = GCN(data.num_features, 16, data.num_classes, dropout=0.5, rngs=nnx.Rngs(0))
    trainer = Trainer(model, data, optimizer=ADAM, epochs=5, eval_every=5, **options)
    return np.array([record.loss for record in trainer.fit().history])


def test_a_run_with_rounded_rows_is_near_and_another(tiny):
    exact, rounded = (losses(tiny, gathered=gathered) for gathered in ("float32", "bfloat16"))
    np.testing.assert_allclose(rounded, exact, rtol=2e-2)
    assert not np.allclose(rounded, exact, rtol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "gin", "sage-mean"])
def test_an_epoch_gathers_bfloat16_and_what_is_hoisted_float32(messy, name):
    (hoisted, *_), found = operators(MODELS[name][0](nnx.Rngs(0)), messy, gathered="bfloat16")
    dtypes = [str(equation.invars[0].aval.dtype) for equation in found]
    assert dtypes == ["float32"] * hoisted + ["bfloat16"] * (len(found) - hoisted)
    assert {str(equation.outvars[0].aval.dtype) for equation in found} == {"float32"}


@pytest.mark.skipif(not native.status().available, reason=f"{native.status().reason}")
def test_what_is_compiled_reads_bfloat16_and_takes_no_more_memory(messy):
    """XLA does not widen what was narrowed on its way to the kernel."""

    def step(gathered):
        trainer = Trainer(MODELS["gcn"][0](nnx.Rngs(0)), messy, optimizer=ADAM, gathered=gathered)
        gradient, _ = trainer._machine.choose_gradient()
        arrays = trainer._machine.arrays
        inputs = EpochInputs(trainer._parts.streams, gradient.keep(arrays).arrays, arrays, np.uint32(0), np.uint32(0))
        return jax.jit(gradient).lower(trainer._parts.params, trainer._parts.state, inputs).compile()

    exact, rounded = step("float32"), step("bfloat16")
    kernels = [line for line in rounded.as_text().splitlines() if "dorylax_ffi_scaled_sum" in line]
    assert len(kernels) == 4
    assert all("custom-call(" in line for line in kernels)
    operands = [re.search(r"custom-call\(%?([\w.-]+)", line)[1] for line in kernels]
    text = rounded.as_text()
    assert all(re.search(rf"%?{re.escape(name)} = bf16\[", text) for name in operands)
    sizes = [one.memory_analysis().temp_size_in_bytes for one in (rounded, exact)]
    assert sizes[0] <= sizes[1]


@pytest.mark.parametrize("gathered", ["float32", "bfloat16"])
def test_estimates_of_memory_compile_the_same_step(monkeypatch, gathered):
    asked = []

    def optimised(functions, parts, spec, *, gathered):
        asked.append(gathered)
        raise SplitError("enough is known")

    monkeypatch.setattr(StepFunctions, "optimised", optimised)
    of_config.estimate(RunConfig.resolve({"data.size": "tiny", "single.gathered": gathered}))
    assert asked == [gathered]
