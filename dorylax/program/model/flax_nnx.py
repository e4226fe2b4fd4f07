"""A Flax NNX model taken apart: static structure, and plain trees of arrays that can be jitted, donated and saved.

Trees are nested dicts of arrays (`{"convs": {0: {"kernel": …}}}`), not `nnx.State`: JAX flattens dicts in C++ at every
call, and optax masks see ordinary keys.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, final

import jax
from flax import nnx

from dorylax.program.model.base import (
    Keywords,
    ModelKindError,
    ModelParts,
    NoParametersError,
    Tree,
    flags_to_give,
    training_flags,
)
from dorylax.program.model.recording import Recorder, flat

# The attributes by which `Module.eval` switches layers off, for which they are then True.
_SWITCHES = ("deterministic", "use_running_average")
# What a model keeps between epochs besides parameters (batch statistics, say); values sown while it runs are dropped.
_CARRIED = nnx.All(nnx.Not(nnx.Param), nnx.Not(nnx.RngState), nnx.Not(nnx.Intermediate))


@final
@dataclasses.dataclass(frozen=True)
class NnxStructure:
    """The static half of a model, hashable: equal for two models of the same class, sizes and settings.

    Attributes:
        train: as it was given.
        evaluate: after `Module.eval`.
        flags: the keywords by which a call is told whether it trains.
    """

    train: nnx.GraphDef[Any]
    evaluate: nnx.GraphDef[Any]
    flags: tuple[str, ...]

    def apply_train(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> tuple[Any, Tree]:
        """One forward pass with dropout: the model's output and its new state."""
        model = nnx.merge(self.train, params, streams, state)
        output = model(graph, *inputs, **named, **training_flags(self.flags, training=True))
        return output, _pure(nnx.state(model, _CARRIED))

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """One exact forward pass, without dropout and without updating anything: the model's output."""
        model = nnx.merge(self.evaluate, params, streams, state)
        return model(graph, *inputs, **named, **training_flags(self.flags, training=False))

    def apply_recorded(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> dict[str, Any]:
        """One such pass: what its layers give and sow, arrays by name."""
        model = nnx.merge(self.evaluate, params, streams, state)
        recorder = Recorder(model)
        with recorder.recording():
            model(graph, *inputs, **named, **training_flags(self.flags, training=False))
        return flat(recorder.found)

    def bound(self, params: Tree, streams: Tree, state: Tree) -> nnx.Module:
        """A new module with these values, after `Module.eval`."""
        params, streams, state = jax.tree.map(jax.numpy.asarray, (params, streams, state))
        model: nnx.Module = nnx.merge(self.evaluate, params, streams, state)
        return model


def take_apart(model: Any) -> ModelParts:
    """Splits a Flax NNX model, which stays as it is.

    It trains with the flags that its layers have: what the user froze (`use_running_average`, `deterministic`) stays
    frozen. A flag of None, which leaves it to the call, trains.

    Raises:
        TypeError: not a Flax NNX module, or one that cannot be called.
        ValueError: it has no parameters.
    """
    if not isinstance(model, nnx.Module) or not callable(model):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ModelKindError(
            f"model must be a Flax NNX module (an instance of flax.nnx.Module) called as model(graph, x), got {kind}"
        )
    copy = nnx.clone(model)
    nnx.pop(copy, nnx.Intermediate)
    for layer, name, value in _switches(copy):
        if value is None:
            setattr(layer, name, False)
    train, (params, streams, state) = nnx.graphdef(copy), nnx.state(copy, nnx.Param, nnx.RngState, ...)
    copy.eval()  # type: ignore[no-untyped-call]
    evaluate = nnx.graphdef(copy)
    if not jax.tree.leaves(params):
        raise NoParametersError(
            f"model {type(model).__name__} has no parameters (nnx.Param): there is nothing to train"
        )
    structure = NnxStructure(train, evaluate, flags_to_give(inspect.signature(model).parameters))
    params, streams, state = (_pure(part) for part in (params, streams, state))
    name, off = type(model).__name__, _switched_off(model)
    return ModelParts(name, structure, params, streams, state, keywords_of(model), off)


def keywords_of(model: Any) -> Keywords:
    """Which inputs beside graph and features it takes by name."""
    return Keywords.of(inspect.signature(model), given=2)


def put_back(model: nnx.Module, params: Tree, state: Tree) -> None:
    """Writes parameters and carried state into the user's model."""
    for tree in (params, state):
        nnx.update(model, jax.tree.map(jax.numpy.asarray, tree))


def _pure(state: Any) -> Tree:
    return nnx.to_pure_dict(state)


def _switches(model: nnx.Module) -> list[tuple[Any, str, bool | None]]:
    """Every layer's flags."""
    layers = [layer for _, layer in nnx.iter_modules(model)]
    return [(layer, name, vars(layer)[name]) for layer in layers for name in _SWITCHES if name in vars(layer)]


def _switched_off(model: nnx.Module) -> str:
    """What says that a model is in evaluation mode as a whole: dropout of a rate, and not a single layer that trains.

    One frozen layer among others is the user's choice, and frozen statistics alone may be.
    """
    switches = _switches(model)
    if any(value is not True for _, _, value in switches):
        return ""
    rates = [
        vars(layer).get("rate", vars(layer).get("dropout_rate")) for layer, name, _ in switches if name == _SWITCHES[0]
    ]
    for rate in rates:
        if isinstance(rate, int | float) and rate > 0:
            return f"is in evaluation mode, and trains without its dropout of rate {rate:g}: call model.train() before"
    return ""
