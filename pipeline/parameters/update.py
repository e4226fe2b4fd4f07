"""The step from one version to the next. Equal gradients give the single-machine trainer's step, bit for bit.

With one update per interval, an epoch has K steps. Moments are updated K times, so the counts that correct their bias stay
right. Schedules are functions of the epoch, so their counts are set before every update. Any other count (accumulated
gradients, a period, patience) would run K times too fast; `uncounted` finds those, to refuse the optimizer.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NoReturn, final

import cloudpickle
import jax
import jax.numpy as jnp
import optax

from dorylax.pipeline.parameters.records import Advance, ServerState, Step, Tree
from dorylax.program.model import optimizer_step

Counts = Literal["epochs", "updates", "nothing"]

_UPDATES: Mapping[str, Counts] = {"count": "updates"}
_EPOCHS: Mapping[str, Counts] = {"count": "epochs"}
_STEP: Mapping[str, Counts] = {"step": "epochs"}

OPTAX: Mapping[str, Mapping[str, Counts]] = {
    # Schedules: functions of the count.
    "ScaleByScheduleState": _EPOCHS,
    "WeightDecaySchedule": _EPOCHS,
    "WrappedScheduleState": _EPOCHS,
    "ConditionallyMaskState": _STEP,
    "ConditionallyTransformState": _STEP,
    "InjectHyperparamsState": {"count": "epochs", "hyperparams": "nothing"},
    "InjectStatefulHyperparamsState": {"count": "epochs", "hyperparams": "nothing"},
    # Moments: the count says how many gradients are in them.
    "EmaState": _UPDATES,
    "FactoredState": _UPDATES,
    "MuonState": _UPDATES,
    "ScaleByAdamState": _UPDATES,
    "ScaleByAdanState": {"t": "updates"},
    "ScaleByAmsgradState": _UPDATES,
    "ScaleByBeliefState": _UPDATES,
    "ScaleByLionState": _UPDATES,
    "ScaleByNovogradState": _UPDATES,
    "ScaleByRStdDevWithCountState": _UPDATES,
    "ScaleByRmsWithCountState": _UPDATES,
    # Both: `count_m2` is read by the schedules of its slow moment only.
    "ScaleByAdemamixState": {"count": "updates", "count_m2": "epochs"},
}
"""Class → field → unit of the counts in optax's states; "nothing" is a value from the user."""


def with_epoch(state: Tree, epoch: Any) -> Tree:
    """Return an optimizer's state with its schedules set to an epoch."""
    children, structure = _children(state)
    if jax.tree_util.treedef_is_leaf(structure):
        return state
    fields = _fields(state)
    return structure.unflatten(
        jnp.asarray(epoch, child.dtype) if fields.get(name) == "epochs" else with_epoch(child, epoch)
        for name, child in children
    )


def uncounted(state: Tree) -> Iterator[str]:
    """Yield the counts that `OPTAX` does not list, such as `MultiStepsState.mini_step`.

    Args:
        state: The state of an optimizer: arrays or their shapes.
    """
    fields = _fields(state)
    for name, child in _children(state)[0]:
        if name in fields:
            continue
        if _is_count(child):
            yield f"{type(state).__name__}.{name}" if name else "its state"
        elif child is not state:
            yield from uncounted(child)


def _fields(state: Tree) -> Mapping[str, Counts]:
    kind = type(state)
    return OPTAX.get(kind.__name__, {}) if kind.__module__.split(".")[0] == "optax" else {}


def _children(state: Tree) -> tuple[list[tuple[str, Any]], Any]:
    """Return the direct children of a pytree with their names; a leaf is its own child."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(state, is_leaf=lambda child: child is not state)
    return [(jax.tree_util.keystr(path, simple=True), child) for path, child in pairs], structure


def _is_count(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and leaf.shape == () and jnp.issubdtype(dtype, jnp.integer)


@final
class OptimizerStep:
    """A pickled and compiled optimizer.

    As on a single machine, an optimizer may read the loss (`value`) and the gradient (`grad`). It may not evaluate the loss
    at other parameters (`value_fn`), because that takes another epoch.

    With a factor K the step is that of `chain(scale(K), optimizer, scale(1/K))`, with the state of `optimizer` itself.
    `value` and `grad` are then K times those of the interval. Such a step with 1/K of a gradient moves 1/K as far as
    `optimizer` with the whole gradient: exactly for SGD, in length for Adam.

    Args:
        optimizer: An optax transformation.
        params: The parameters, or their shapes.
        advance: Computes the model's new state; None if the model has no state.
        by_epoch: Whether schedules follow the epoch instead of the number of updates.

    Raises:
        ValueError: The optimizer does not pickle, or needs `value_fn`.
    """

    def __init__(
        self,
        optimizer: optax.GradientTransformation,
        params: Tree,
        advance: Advance | None = None,
        *,
        by_epoch: bool = False,
    ) -> None:
        # Load the pickled optimizer even on one machine, so that pickling faults show early.
        self._optimizer, self._step = _loaded(_pickled(optimizer))
        # Losses are sums of many intervals' parts: float32 at least, float64 where the parameters are.
        floats = [leaf.dtype for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        self._advance, self._by_epoch = advance, by_epoch
        self._loss_type = jnp.result_type(jnp.float32, *floats)
        self._try(params)

    def start(self, params: Tree, state: Tree, opt_state: Tree | None = None, version: int = 0) -> ServerState:
        """Return the first version of a server, with copies of all arrays.

        Args:
            params: The parameters.
            state: The model's other variables.
            opt_state: The state of the optimizer; None initialises it.
            version: The number of updates that the arrays contain.
        """
        params = optimizer_step.fresh(params)
        opt_state = optimizer_step.fresh(self._optimizer.init(params) if opt_state is None else opt_state)
        return ServerState(version, params, opt_state, optimizer_step.fresh(state))

    def __call__(self, last: ServerState, update: Step) -> ServerState:
        """Compute the version after an update. The last version stays valid.

        Raises:
            ValueError: The update is not the next one.
        """
        if update.number != last.version + 1:
            raise ValueError(f"update {update.number} does not follow version {last.version}")
        state = last.state
        if self._advance is not None:  # of the newest state, not of a stashed one: no version's change may be lost
            state = self._advance(last.params, state, update.epoch, update.statistics)
        epoch = update.epoch if self._by_epoch else None
        params, opt_state = self.step(
            last.params, last.opt_state, update.gradients, update.loss, epoch=epoch, factor=update.factor
        )
        return ServerState(update.number, *jax.block_until_ready((params, opt_state, state)))

    def step(
        self,
        params: Tree,
        opt_state: Tree,
        gradients: Tree,
        loss: Any,
        *,
        epoch: int | None = None,
        factor: int = 1,
    ) -> tuple[Tree, Tree]:
        """Return the parameters and the optimizer's state after a step. The class explains `factor`."""
        loss = jnp.asarray(loss, self._loss_type)
        return self._step(params, opt_state, gradients, loss, epoch=epoch, factor=factor)

    def _try(self, params: Tree) -> None:
        """Trace a step, so that an unsupported optimizer fails before training starts."""
        params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
        loss = jax.ShapeDtypeStruct((), self._loss_type)
        opt_state = jax.eval_shape(self._optimizer.init, params)
        jax.eval_shape(self._step, params, opt_state, params, loss)


@functools.lru_cache(maxsize=16)
def _loaded(pickled: bytes) -> tuple[optax.GradientTransformationExtraArgs, Callable[..., tuple[Tree, Tree]]]:
    """Return the optimizer and its jitted step, cached so that servers and seeds with equal bytes compile once."""
    optimizer = optax.with_extra_args_support(cloudpickle.loads(pickled))

    def step(
        params: Tree,
        opt_state: Tree,
        gradients: Tree,
        loss: Any,
        *,
        epoch: Any = None,
        factor: int = 1,
    ) -> tuple[Tree, Tree]:
        if epoch is not None:
            opt_state = with_epoch(opt_state, epoch)
        return optimizer_step.step(optimizer, params, opt_state, gradients, loss, value_fn=_refuse, factor=factor)

    return optimizer, jax.jit(step, static_argnames="factor")


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise ValueError(
        "the optimizer evaluates the loss at other parameters (it calls value_fn, as line searches do), which parameter "
        "servers cannot: choose another optimizer, or train on a single machine"
    )


def _pickled(optimizer: optax.GradientTransformation) -> bytes:
    try:
        made: bytes = cloudpickle.dumps(optimizer)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the optimizer cannot be sent to parameter servers, because cloudpickle cannot pickle it ({error}): "
            "let its functions refer to no files, locks or handles"
        ) from error
    return made
