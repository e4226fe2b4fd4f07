"""The step from a version to the next: the single-machine trainer's, bit for bit, given the same gradients."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any, NoReturn, final

import cloudpickle
import jax
import jax.numpy as jnp
import optax

from dorylax.pipeline.parameters.records import Advance, ServerState, Step, Tree
from dorylax.pipeline.parameters.step_counts import with_epoch


@final
class OptimizerStep:
    """An optimizer, shipped and compiled.

    Besides gradients, an optimizer may look at the loss (`value`) and at the gradient that it is given (`grad`), as on a
    single machine, but not at the loss of other parameters (`value_fn`): that would be another epoch.

    With a factor K the step is that of `chain(scale(K), optimizer, scale(1/K))`, with the state of `optimizer` itself.
    `value` and `grad` are those that belong to the scaled gradient: K times what they are for the interval. Such a step
    with a K-th of a gradient moves a K-th as far as `optimizer` with all of it: exactly for SGD, in size for Adam.

    Args:
        optimizer: an optax transformation, or one that cloudpickle has made bytes of.
        params: parameters to be updated, or their shapes.
        advance: makes the model's new state; None where it has none that changes.
        by_epoch: schedules stand at the epoch of an update, however many updates an epoch has (see `step_counts`).

    Attributes:
        pickled: the optimizer, as it is sent to a server in another process.

    Raises:
        ValueError: the optimizer cannot be pickled, or needs `value_fn`.
    """

    def __init__(
        self,
        optimizer: optax.GradientTransformation | bytes,
        params: Tree,
        advance: Advance | None = None,
        *,
        by_epoch: bool = False,
    ) -> None:
        self.pickled = optimizer if isinstance(optimizer, bytes) else _pickled(optimizer)
        # Always what was shipped, so that what does not survive shipping shows on one machine already.
        self._optimizer, self._step = _loaded(self.pickled)
        # Losses are sums of many intervals' parts: float32 at least, float64 where the parameters are.
        floats = [leaf.dtype for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        self._advance, self._by_epoch = advance, by_epoch
        self._loss_type = jnp.result_type(jnp.float32, *floats)
        self._try(params)

    def start(self, params: Tree, state: Tree, opt_state: Tree | None = None, version: int = 0) -> ServerState:
        """What a server begins with; copies, which nobody else writes to.

        Args:
            params: the parameters.
            state: what else the model keeps.
            opt_state: the optimizer's state; a new one where None.
            version: how many updates they have seen.
        """
        params = _fresh(params)
        opt_state = _fresh(self._optimizer.init(params) if opt_state is None else opt_state)
        return ServerState(version, params, opt_state, _fresh(state))

    def __call__(self, last: ServerState, update: Step) -> ServerState:
        """The version after an update, computed; the one before stays valid.

        Raises:
            ValueError: the update is not the next one.
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
        """Parameters and the optimizer's state after a step; see the class for `factor`."""
        loss = jnp.asarray(loss, self._loss_type)
        return self._step(params, opt_state, gradients, loss, epoch=epoch, factor=factor)

    def _try(self, params: Tree) -> None:
        """Traces a step, so that an optimizer that cannot be served is refused before anything runs."""
        params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
        loss = jax.ShapeDtypeStruct((), self._loss_type)
        opt_state = jax.eval_shape(self._optimizer.init, params)
        jax.eval_shape(self._step, params, opt_state, params, loss)


@functools.lru_cache(maxsize=16)
def _loaded(pickled: bytes) -> tuple[optax.GradientTransformationExtraArgs, Callable[..., tuple[Tree, Tree]]]:
    """The optimizer and its jitted step: one for the same bytes, so that many servers and seeds compile it once."""
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
        if factor != 1:
            gradients, loss = _scaled(gradients, float(factor)), loss * factor
        updates, new_opt_state = optimizer.update(
            gradients, opt_state, params, value=loss, grad=gradients, value_fn=_refuse
        )
        if factor != 1:
            updates = _scaled(updates, 1 / factor)
        new = (optax.apply_updates(params, updates), new_opt_state)
        stepped: tuple[Tree, Tree] = jax.tree.map(_like, new, (params, opt_state))
        return stepped

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


def _scaled(tree: Tree, factor: float) -> Tree:
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def _fresh(tree: Tree) -> Tree:
    """Copies with a definite dtype, so that later steps see the same types."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, dtype=jnp.asarray(leaf).dtype, copy=True), tree)


def _like(leaf: Any, old: Any) -> Any:
    """With the dtype that it had (and no weak type), as in the single-machine step."""
    return jnp.asarray(leaf, dtype=old.dtype)
