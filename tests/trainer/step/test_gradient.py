"""The optimised program trains as the plain model does, computes less, and stands back where a model cannot be split."""

from __future__ import annotations

import re

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from dorylax.graph.datasets import load
from dorylax.layers import GAT, GCN, GraphSAGE
from dorylax.ops.gather import gather
from dorylax.program.passes import PASSES
from dorylax.trainer import Trainer
from dorylax.trainer.step import gradient
from dorylax.trainer.step.compiled import EpochInputs

ADAM = optax.adam(0.02)  # one object, so that runs share what they compile


class OwnNet(nnx.Module):
    """A user's model, with Flax's own dropout."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(16, 8, rngs=rngs)
        self.second = nnx.Linear(8, 4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, graph, x):
        h = jax.nn.relu(gather(graph, self.first(self.drop(x)), reduce="mean"))
        return self.second(h + gather(graph, self.drop(h), reduce="mean"))


@pytest.fixture(scope="module")
def tiny():
    return load("communities", size="tiny")


@pytest.fixture(scope="module")
def reordered(tiny):
    return tiny.reorder(np.random.default_rng(0).permutation(tiny.graph.num_vertices))


def losses(model, data, **options):
    chosen = {"optimizer": ADAM, "epochs": 5, "eval_every": 5, **options}
    return [record.loss for record in Trainer(model, data, **chosen).fit().history]


MODELS = {
    "gat": lambda rngs: GAT(16, 4, 4, heads=2, dropout=0.5, attention_dropout=0.5, rngs=rngs),
    "sage-max": lambda rngs: GraphSAGE(16, 8, 4, aggregation="max", dropout=0.5, rngs=rngs),
}


@pytest.mark.parametrize("name", MODELS)  # those that fold normalisation: trainer/test_folded.py
def test_trains_as_the_plain_model(tiny, name):
    own, plain = (losses(MODELS[name](nnx.Rngs(0)), tiny, optimize=optimize) for optimize in (True, False))
    np.testing.assert_allclose(own, plain, rtol=1e-4)


def test_flax_dropout_is_drawn_by_vertex_id(tiny, reordered):
    runs = {
        (data, optimize): losses(OwnNet(rngs=nnx.Rngs(0)), data, optimize=optimize)
        for data in (tiny, reordered)
        for optimize in (True, False)
    }
    np.testing.assert_allclose(runs[tiny, True], runs[tiny, False], rtol=1e-4)
    np.testing.assert_allclose(runs[tiny, True], runs[reordered, True], rtol=1e-4)
    # Why that is worth a test: by place in memory the masks are others.
    assert not np.allclose(runs[tiny, False], runs[reordered, False], rtol=1e-4)


def traced_step(trainer):
    """The jaxpr of a trainer's step, and what its gradient keeps."""
    loop, arrays = trainer._fresh(), trainer._machine.arrays
    own, _ = trainer._machine.choose_gradient()
    kept = own.keep(arrays).arrays
    inputs = EpochInputs(trainer._parts.streams, kept, arrays, np.uint32(0), np.uint32(0))
    carry = (loop.params, loop.opt_state, loop.state)
    jaxpr = jax.make_jaxpr(lambda carry, inputs: trainer._functions._step(own, carry, inputs))(carry, inputs)
    return jaxpr, kept


def gathers(jaxpr):
    return len(re.findall(r"\bdorylax_gather_(?:sum|scaled)\[", str(jaxpr)))


def test_a_two_layer_gcn_gathers_once_in_each_direction(tiny):
    """The first layer's gather is hoisted, its gradient needs none, and what is kept is an argument."""
    makers = [
        Trainer(GCN(16, 8, 4, dropout=0.0, rngs=nnx.Rngs(0)), tiny, optimizer=ADAM, optimize=flag)
        for flag in (True, False)
    ]
    (own, kept), (plain, nothing) = map(traced_step, makers)
    assert gathers(own) == 2
    assert gathers(plain) > 2
    assert tiny.features.shape in [array.shape for array in kept]
    assert nothing == ()
    assert all(np.size(const) <= 1 for jaxpr in (own, plain) for const in jaxpr.consts)


# Models that cannot be split


def test_a_model_that_mixes_vertices_trains_with_one_warning(trainer, norm_net, same):
    runner = trainer(model=norm_net(rngs=nnx.Rngs(0)), epochs=2)
    wanted = r"NormNet cannot be split .* plain jit, and a pipeline would refuse it: combines values .*conftest\.py:\d+"
    with pytest.warns(UserWarning, match=wanted) as caught:
        result = runner.fit()
    assert len(caught) == 1
    assert same(runner.fit().last_params, result.last_params)  # any warning would be an error
    assert runner.predict().shape == (48, 3)
    assert result.passes is None
    plain = trainer(model=norm_net(rngs=nnx.Rngs(0)), epochs=2, optimize=False).fit()
    assert same(plain.last_params, result.last_params)


def test_other_errors_of_tracing_are_errors(trainer, monkeypatch, tmp_path):
    def broken(program):
        raise KeyError("a bug")

    monkeypatch.setattr(gradient, "optimise", broken)
    runner = trainer(optimizer=optax.sgd(0.1), run_directory=tmp_path / "run")
    for _ in range(2):
        with pytest.raises(KeyError, match="a bug"):
            runner.fit()
    assert not (tmp_path / "run").exists()


def test_the_result_says_which_passes(trainer):
    assert trainer(epochs=1).fit().passes == PASSES
