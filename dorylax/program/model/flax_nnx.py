"""Takes a Flax NNX model apart: static structure, and plain trees of arrays that can be jitted, donated and saved.

Trees are nested dicts of arrays (`{"convs": {0: {"kernel": …}}}`), not `nnx.State`: JAX flattens dicts in C++ at every call,
and optax masks see ordinary keys.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import jax
from flax import nnx

from dorylax.errors import InputError
from dorylax.program.model.base import Keywords, ModelKindError, ModelParts, Tree, flags_to_give, training_flags

# Attributes that `Module.eval` sets to True to switch layers off.
_SWITCHES = ("deterministic", "use_running_average")
# Values kept between epochs other than parameters (such as batch statistics); values sown during a call are dropped.
_CARRIED = nnx.All(nnx.Not(nnx.Param), nnx.Not(nnx.RngState), nnx.Not(nnx.Intermediate))


@final
@dataclasses.dataclass(frozen=True)
class NnxStructure:
    """Static part of an NNX model, hashable: equal for two models of the same class, sizes and settings.

    Attributes:
        train: The model in training mode.
        evaluate: The model after `Module.eval`.
        flags: Keywords that set the mode in a call.
    """

    train: nnx.GraphDef[Any]
    evaluate: nnx.GraphDef[Any]
    flags: tuple[str, ...]

    def apply_train(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> tuple[Any, Tree]:
        """See `ModelStructure`."""
        model = nnx.merge(self.train, params, streams, state)
        output = model(graph, *inputs, **named, **training_flags(self.flags, training=True))
        return output, _pure(nnx.state(model, _CARRIED))

    def apply_evaluate(self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any) -> Any:
        """See `ModelStructure`."""
        model = nnx.merge(self.evaluate, params, streams, state)
        return model(graph, *inputs, **named, **training_flags(self.flags, training=False))

    def apply_recorded(
        self, params: Tree, streams: Tree, state: Tree, graph: Any, *inputs: Any, **named: Any
    ) -> dict[str, Any]:
        """See `ModelStructure`. Includes values that layers sow."""
        model = nnx.merge(self.evaluate, params, streams, state)
        recorder = Recorder(model)
        with recorder.recording():
            model(graph, *inputs, **named, **training_flags(self.flags, training=False))
        return flat(recorder.found)

    def bound(self, params: Tree, streams: Tree, state: Tree) -> nnx.Module:
        """Return a new module with these values, after `Module.eval`."""
        params, streams, state = jax.tree.map(jax.numpy.asarray, (params, streams, state))
        model: nnx.Module = nnx.merge(self.evaluate, params, streams, state)
        return model


def take_apart(model: Any) -> ModelParts:
    """Take a Flax NNX model apart, and leave it unchanged.

    It trains with its layers' flags: layers that the user froze (`use_running_average`, `deterministic`) stay frozen. A flag
    of None, which defers to the call, is set for training.

    Raises:
        TypeError: The model is not a callable Flax NNX module.
        ValueError: There are no parameters.
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
        raise InputError(f"model {type(model).__name__} has no parameters (nnx.Param): there is nothing to train")
    structure = NnxStructure(train, evaluate, flags_to_give(inspect.signature(model).parameters))
    params, streams, state = (_pure(part) for part in (params, streams, state))
    name, off = type(model).__name__, _switched_off(model)
    return ModelParts(name, structure, params, streams, state, Keywords.of(model, given=2), off)


def put_back(model: nnx.Module, params: Tree, state: Tree) -> None:
    """Write parameters and carried state into the user's model."""
    for tree in (params, state):
        nnx.update(model, jax.tree.map(jax.numpy.asarray, tree))


def _pure(state: Any) -> Tree:
    return nnx.to_pure_dict(state)


def _switches(model: nnx.Module) -> list[tuple[Any, str, bool | None]]:
    """Return every layer's flags."""
    layers = [layer for _, layer in nnx.iter_modules(model)]
    return [(layer, name, vars(layer)[name]) for layer in layers for name in _SWITCHES if name in vars(layer)]


def _switched_off(model: nnx.Module) -> str:
    """Return a message if the whole model is in evaluation mode: it has dropout of rate > 0, and every flag is True.

    A single frozen layer among others, or frozen statistics alone, may be the user's choice.
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


# Recording of outputs and sown values of layers. `nnx.capture` of Flax 0.12.8 changes the classes of all modules in the
# process while it records. Here, only the recorded modules get a new class, so that another thread may train a model of the
# same kind meanwhile.

OUTPUT = "output"
"""Name of the model's own output."""

_RECORDER: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("recorder", default=None)


@final
class Recorder:
    """Records the values of one model's modules.

    Args:
        model: The model; it is changed and must not be used otherwise.

    Attributes:
        found: Name → values, in the order of recording.
    """

    def __init__(self, model: nnx.Module) -> None:
        self.found: dict[str, list[Any]] = {}
        self._paths: dict[int, tuple[Any, ...]] = {}
        for path, module in list(nnx.iter_modules(model)):
            self._paths[id(module)] = path
            object.__setattr__(module, "__class__", _watched(type(module)))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Context in which modules record."""
        token = _RECORDER.set(self)
        try:
            yield
        finally:
            _RECORDER.reset(token)

    def record(self, module: nnx.Module, name: str | None, value: Any) -> None:
        """Record a module's output, or a value that it has sown under a name.

        Copies of a module made by a transformation (`nnx.scan`, `nnx.remat`) are skipped, since their values do not exist
        outside of it.
        """
        path = self._paths.get(id(module))
        if path is not None:
            self.found.setdefault(name_of(path, name), []).append(value)


def name_of(path: Sequence[Any], name: str | None = None) -> str:
    """Return the name of a value: `convs.0` is the output of `model.convs[0]`, `convs.0.attention` a value that it sows."""
    return ".".join([*map(str, path), *([] if name is None else [name])]) or OUTPUT


def flat(found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return name → array; several values of one name are numbered: `convs.0.1`."""
    arrays = {}
    for name, values in found.items():
        leaves = jax.tree.leaves_with_path(values[0] if len(values) == 1 else list(values))
        for path, leaf in leaves:
            below = jax.tree_util.keystr(path, simple=True, separator=".")
            arrays[f"{name}.{below}" if below else name] = leaf
    return arrays


@functools.lru_cache(maxsize=1024)
def _watched(kind: type[nnx.Module]) -> type[nnx.Module]:
    """Derive a class whose modules record their values."""

    def told(self: nnx.Module, *args: Any, **options: Any) -> Any:
        result = kind.__call__(self, *args, **options)
        if (recorder := _RECORDER.get()) is not None:
            recorder.record(self, None, result)
        return result

    def sow(self: nnx.Module, variable_type: Any, name: str, value: Any, *_: Any, **__: Any) -> bool:
        recorder = _RECORDER.get()
        if recorder is None or not _is_intermediate(variable_type):
            return False
        recorder.record(self, name, value)
        return True

    # By `__captures__` a layer finds that sown values are kept, as under `nnx.capture` (`dorylax.layers.base.captures`).
    members: dict[str, Any] = {"sow": sow, "__captures__": (), "__module__": kind.__module__}
    if any("__call__" in vars(base) for base in kind.__mro__):
        members["__call__"] = told
    return type(kind.__name__, (kind,), members)


def _is_intermediate(variable_type: Any) -> bool:
    if isinstance(variable_type, str):
        return variable_type == "intermediates"
    return issubclass(variable_type, nnx.Intermediate) and not issubclass(variable_type, nnx.Perturbation)
