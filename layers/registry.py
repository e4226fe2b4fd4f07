"""Named models, with the options that each supports and its published recipe.

A recipe uses the keys of the run configuration (`dorylax.config`), which takes values from it that the user did not set.
This module is otherwise independent of configurations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, final

from flax import nnx

from dorylax.layers.models import APPNP, GAT, GCN, GCNII, GIN, MLP, MPNN, SGC, GATv2, GraphSAGE
from dorylax.user_code.references import Arguments, is_reference, load_reference

# Options of the models built on the skeleton, without their input and output widths.
_SHARED = frozenset({"hidden_features", "num_layers", "dropout", "norm", "residual", "jk"})


@final
@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A named model.

    Attributes:
        name: Name of the model.
        make: Its class, called as `make(in_features=…, out_features=…, **options, rngs=rngs)`.
        options: Supported `model.*` keys, without the prefix.
        recipe: Published recipe as dotted configuration keys; learning rates per step, weight decay as the factor λ
            of the gradient term λ·w (L2 penalty λ/2·‖w‖²), rates as probabilities.
        source: The paper, and the parts of the recipe that are not from it.
    """

    name: str
    make: Any
    options: frozenset[str]
    recipe: Mapping[str, Any]
    source: str


def _recipe(*unused: str, **changes: Any) -> Mapping[str, Any]:
    """Return Kipf & Welling's recipe, which most later papers keep, with changes (`a__b` is a.b).

    `unused` names options in it that the model lacks.
    """
    base = {
        "model.hidden_features": 16,
        "model.num_layers": 2,
        "model.dropout": 0.5,
        "model.norm": "none",
        "model.residual": False,
        "optimizer.name": "adam",
        "optimizer.learning_rate": 0.01,
        "optimizer.weight_decay": 5e-4,
        "optimizer.weight_decay_on": "first",
        "data.row_normalise": True,
        "train.epochs": 200,
    }
    recipe = base | {key.replace("__", "."): value for key, value in changes.items()}
    return MappingProxyType({key: value for key, value in recipe.items() if key.removeprefix("model.") not in unused})


def _attention_recipe(**changes: Any) -> Mapping[str, Any]:
    """Return Veličković et al.'s recipe, with changes."""
    return _recipe(
        model__hidden_features=8,
        model__heads=8,
        model__output_heads=1,
        model__dropout=0.6,
        model__attention_dropout=0.6,
        optimizer__learning_rate=0.005,
        optimizer__weight_decay_on="all",
        train__epochs=1000,
        **changes,
    )


MODELS: Mapping[str, ModelSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            ModelSpec(
                name="gcn",
                make=GCN,
                options=_SHARED,
                recipe=_recipe(),
                source="Kipf & Welling, ICLR 2017, section 5.2. All 200 epochs are run, without the "
                "paper's early stopping after 10 epochs without a lower validation loss.",
            ),
            ModelSpec(
                name="gat",
                make=GAT,
                options=_SHARED | {"heads", "output_heads", "attention_dropout"},
                recipe=_attention_recipe(),
                source="Veličković et al., ICLR 2018, section 3.3 (transductive, cora). The paper trains until neither "
                "validation loss nor accuracy has improved for 100 epochs; here, 1000 epochs and the best by accuracy.",
            ),
            ModelSpec(
                name="gatv2",
                make=GATv2,
                options=_SHARED | {"heads", "output_heads", "attention_dropout", "share_weights"},
                recipe=_attention_recipe(model__share_weights=False),
                source="Brody et al., ICLR 2022. The paper has no recipe for citation graphs: everything is as in gat, "
                "with a matrix for each end of an edge.",
            ),
            ModelSpec(
                name="sage",
                make=GraphSAGE,
                options=_SHARED | {"aggregation"},
                recipe=_recipe(model__hidden_features=64, model__aggregation="mean"),
                source="Hamilton et al., NeurIPS 2017: two layers, mean, Adam, ReLU. Width 64 and the rest, which the "
                "paper's inductive experiments do not give, are as in gcn.",
            ),
            ModelSpec(
                name="gin",
                make=GIN,
                options=_SHARED | {"train_epsilon"},
                recipe=_recipe(model__hidden_features=64, model__norm="layer"),
                source="Xu et al., ICLR 2019: ε = 0, two-layer perceptrons, Adam 0.01, dropout 0.5. The paper classifies "
                "graphs: width 64, layer (not batch) normalisation, two layers and the rest are as in gcn.",
            ),
            ModelSpec(
                name="sgc",
                make=SGC,
                options=frozenset({"num_propagations"}),
                recipe=_recipe(
                    "hidden_features",
                    "num_layers",
                    "dropout",
                    "norm",
                    "residual",
                    model__num_propagations=2,
                    optimizer__learning_rate=0.2,
                    optimizer__weight_decay=5e-6,
                    optimizer__weight_decay_on="all",
                    train__epochs=100,
                ),
                source="Wu et al., ICML 2019, section 5.1: K = 2, Adam 0.2, 100 epochs. The paper tunes weight decay "
                "for each data set; this is the default of the authors' code.",
            ),
            ModelSpec(
                name="appnp",
                make=APPNP,
                options=_SHARED | {"num_propagations", "alpha", "edge_dropout"},
                recipe=_recipe(
                    model__hidden_features=64,
                    model__num_propagations=10,
                    model__alpha=0.1,
                    model__edge_dropout=0.5,
                    optimizer__weight_decay=5e-3,
                    train__epochs=1000,
                ),
                source="Gasteiger et al., ICLR 2019, section 5: two layers of 64, without biases (here with them). The "
                "paper trains until neither validation loss nor accuracy has improved for 100 epochs; here, 1000 "
                "epochs and the best by accuracy.",
            ),
            ModelSpec(
                name="gcnii",
                make=GCNII,
                options=frozenset({"hidden_features", "num_layers", "dropout", "alpha", "theta", "share_weights"}),
                recipe=_recipe(
                    "norm",
                    "residual",
                    model__hidden_features=64,
                    model__num_layers=64,
                    model__dropout=0.6,
                    model__alpha=0.1,
                    model__theta=0.5,
                    model__share_weights=True,
                    optimizer__weight_decay_on="all",
                    train__epochs=1500,
                ),
                source="Chen et al., ICML 2020, section 5.1 (cora, 64 layers). The paper decays its convolutions by "
                "0.01 and the linear layers by 0.0005; here 0.0005 for all. It stops after 100 epochs without a lower "
                "validation loss; here, 1500 epochs and the best by accuracy.",
            ),
            ModelSpec(
                name="mpnn",
                make=MPNN,
                options=_SHARED | {"aggregation"},
                recipe=_recipe(model__hidden_features=64, model__aggregation="mean"),
                source="Gilmer et al., ICML 2017, the general form: one perceptron for messages, one for updates. The "
                "paper sums messages, in molecules; here they are averaged, with width 64 and the rest as in sage. No "
                "data set has edge features, so none are used.",
            ),
            ModelSpec(
                name="mlp",
                make=MLP,
                options=_SHARED,
                recipe=_recipe(),
                source="The baseline of Kipf & Welling, ICLR 2017, table 2: the recipe of gcn without the edges.",
            ),
        )
    }
)


def build(name: str, in_features: int, out_features: int, options: Mapping[str, Any], rngs: nnx.Rngs) -> Any:
    """Build a model.

    Args:
        name: A key of `MODELS`, or a reference to user code (`dorylax.user_code.references`), whose class receives the
            options unchanged, and widths and streams under its names for them (`Arguments.filled_in`).
        in_features: F, width of the features.
        out_features: C, number of classes.
        options: `model.*` keys without the prefix; missing ones are taken from the model's recipe.
        rngs: Streams `params` and `dropout`.

    Returns:
        The model, called as `model(graph, x [V, F]) -> [V, C]`.

    Raises:
        ValueError: The model is unknown, or an option is not supported or out of range.
    """
    if is_reference(name):
        values = {"in_features": in_features, "out_features": out_features, "rngs": rngs}
        filled = {argument: values[role] for argument, role in Arguments.of(name).filled_in(options).items()}
        return load_reference(name)(**filled, **options)
    if name not in MODELS:
        raise ValueError(f"model.name must be one of {', '.join(MODELS)}, got {name!r}")
    spec = MODELS[name]
    unknown = sorted(set(options) - spec.options)
    if unknown:
        raise ValueError(f"model.{unknown[0]} means nothing to {name}, which has {', '.join(sorted(spec.options))}")
    published = {key.removeprefix("model."): value for key, value in spec.recipe.items() if key.startswith("model.")}
    chosen = published | dict(options)
    return spec.make(in_features=in_features, out_features=out_features, **chosen, rngs=rngs)
