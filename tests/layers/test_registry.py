from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest
from flax import nnx

from dorylax.graph.graph import Graph
from dorylax.layers import MODELS, build


@pytest.mark.parametrize("name", MODELS)
def test_builds_the_published_model(name: str, messy_graph: Graph) -> None:
    model = build(name, 5, 3, {}, nnx.Rngs(0))
    assert isinstance(model, MODELS[name].make)
    definition, state = nnx.split(model)
    call = lambda state, graph, x: nnx.merge(definition, state, copy=True)(graph, x)  # noqa: E731
    assert jax.eval_shape(call, state, messy_graph, jax.numpy.ones((12, 5))).shape == (12, 3)
    assert len(model.convs) == MODELS[name].recipe.get("model.num_layers", 1)


@pytest.mark.parametrize("name", MODELS)
def test_options_are_the_arguments_that_a_configuration_can_hold(name: str) -> None:
    spec = MODELS[name]
    arguments = set(inspect.signature(spec.make.__init__).parameters)
    data = {"in_features", "edge_features", "out_features"}
    outside = data | {"self", "activation", "dtype", "param_dtype", "rngs"}
    assert spec.options == arguments - outside
    assert spec.name == name


@pytest.mark.parametrize("name", MODELS)
def test_recipe_speaks_of_options_that_the_model_has(name: str) -> None:
    spec = MODELS[name]
    assert {key.split(".")[0] for key in spec.recipe} == {"model", "optimizer", "data", "train"}
    assert {key.removeprefix("model.") for key in spec.recipe if key.startswith("model.")} <= spec.options


def test_given_options_win_over_the_recipe() -> None:
    model = build(
        "gat", 5, 3, {"hidden_features": 7, "heads": 2, "num_layers": 3, "attention_dropout": 0.1}, nnx.Rngs(0)
    )
    assert [conv.kernel.shape for conv in model.convs] == [(5, 14), (14, 14), (14, 3)]
    assert model.convs[0].dropout.rate == 0.1
    assert model.skeleton.dropouts[0].rate == 0.6


def test_unknown_model_is_refused() -> None:
    names = "gcn, gat, gatv2, sage, gin, sgc, appnp, gcnii, mpnn, mlp"
    with pytest.raises(ValueError, match=rf"model\.name must be one of {names}, got 'gnc'"):
        build("gnc", 5, 3, {}, nnx.Rngs(0))


def test_models_without_hidden_rows_are_built_too() -> None:
    assert build("sgc", 5, 3, {"num_propagations": 4}, nnx.Rngs(0)).convs[0].num_propagations == 4
    with pytest.raises(ValueError, match=r"model\.hidden_features means nothing to sgc, which has num_propagations"):
        build("sgc", 5, 3, {"hidden_features": 8}, nnx.Rngs(0))


def test_option_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model\.heads means nothing to gcn, which has dropout, hidden_features, "):
        build("gcn", 5, 3, {"heads": 8}, nnx.Rngs(0))


def test_seeds_give_different_parameters_and_the_same_seed_the_same() -> None:
    a, b, c = (build("sage", 5, 3, {}, nnx.Rngs(seed)).convs[0].kernel_self[...] for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.any(a != c)
