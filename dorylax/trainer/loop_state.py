"""The state of a run that changes while it trains, its description, and the checkpoint that holds both."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.config.schema import TrainConfig
from dorylax.errors import InputError
from dorylax.graph.data_shape import describe_data
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData
from dorylax.program.model.base import ModelParts, Tree
from dorylax.runs.result import EpochRecord, Timings, best_epoch, improves
from dorylax.settings.retired import upgraded
from dorylax.store.arrays import Part, PartsWriter
from dorylax.store.checkpoint import PARTS_GROUP, Checkpoint
from dorylax.store.run_directory import RunDirectoryError, differences, listed

# Parts of `data` in a run's description that checkpoints of earlier versions lack.
_UNSAID = ("data.multilabel", "data.targets", "data.class_names")
# Parts of the description that must match for parameters to be usable, possibly on other data.
_OF_PARAMETERS = ("model", "parameters.", "state.", "optimizer_state.", "settings.model.")
# Name of a checkpoint's group of arrays, and of an entry of its record, for a pipeline's carried state.
_CARRIED = PARTS_GROUP
# Trees of `LoopState`, which are groups of arrays, and how each array is made again.
_TREES: Mapping[str, Any] = {
    "params": jnp.array,
    "opt_state": jnp.array,
    "state": jnp.array,
    "best_params": np.asarray,
    "best_state": np.asarray,
}


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Carried:
    """State of a runner that it needs, in addition to the `LoopState`, to continue bit for bit.

    Attributes:
        arrays: Name → NumPy array.
        record: JSON values.
        parts: By name, parts that other processes have written and will read; or a writer that has them written when the
            state is saved.
    """

    arrays: dict[str, np.ndarray]
    record: dict[str, Any]
    parts: Mapping[str, Part] | PartsWriter = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass
class LoopState:
    """State of a run between two epochs.

    Attributes:
        params: Current parameters, on the device.
        opt_state: State of the optimizer.
        state: The model's other carried state.
        history: Records of the epochs so far.
        best: Record of the best epoch so far; None before any evaluation.
        best_params: Copies of `params` on the host after the best regularly evaluated epoch; the initial ones before any.
        best_state: Copies of `state` on the host after that epoch.
        best_is_last: Whether the best epoch is the last one and was evaluated only for that reason. Its parameters are then
            `params`, while `best_params` still hold the best of the regular evaluations, for a run that continues.
        timings: Seconds so far, over all processes of the run.
        diverged: Whether the last step gave NaN or infinity; such a state can be inspected but not trained.
        carried: The runner's additional state when this state was saved; None if it had none.
        report: The summary's report on the epochs when this state was saved; None if there was none.
    """

    params: Tree
    opt_state: Tree
    state: Tree
    best_params: Tree
    best_state: Tree
    history: list[EpochRecord] = dataclasses.field(default_factory=list)
    best: EpochRecord | None = None
    best_is_last: bool = False
    timings: Timings = dataclasses.field(default_factory=Timings)
    diverged: bool = False
    carried: Carried | None = None
    report: dict[str, Any] | None = None

    @property
    def epochs(self) -> int:
        """Number of finished epochs, which is also the number of the next epoch."""
        return len(self.history)

    @property
    def chosen(self) -> tuple[Tree, Tree]:
        """Parameters and carried state of the best epoch; before any evaluation the current ones, if finite."""
        unjudged = self.best is None and not self.diverged
        current = unjudged or self.best_is_last
        return (self.params, self.state) if current else (self.best_params, self.best_state)

    def copy(self) -> LoopState:
        """Return the same state in new arrays, which training may donate."""
        current = (self.params, self.opt_state, self.state)
        params, opt_state, state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), current)
        history = list(self.history)
        return dataclasses.replace(self, params=params, opt_state=opt_state, state=state, history=history)

    def add(self, record: EpochRecord, *, regular: bool = True) -> None:
        """Append an epoch whose update is already in `params`, and keep a copy if it is the best so far.

        Args:
            record: Record of the epoch.
            regular: False if it is evaluated only because it is the last.
        """
        self.history.append(record)
        if improves(record, self.best):
            self.best, self.best_is_last = record, not regular
            if regular:
                self.best_params, self.best_state = to_host(self.params), to_host(self.state)

    def go_on(self, train: TrainConfig) -> None:
        """Turn a restored state into the state that a run with these settings has after as many epochs.

        If the run continues past its former last epoch, the evaluation of that epoch is dropped, unless it is regular.

        Raises:
            RunDirectoryError: The settings end the run earlier, or right after an epoch that lacks its final evaluation.
        """
        if self.epochs > train.epochs:
            raise RunDirectoryError(
                f"train.epochs is {train.epochs}, but {self.epochs} epochs of this run are trained already: "
                f"give {self.epochs} or more, or choose another run directory"
            )
        if not self.history or (last := self.history[-1]).evaluated == train.evaluates(last.epoch):
            return
        if not last.evaluated:
            raise RunDirectoryError(
                f"train.epochs is {train.epochs}, but the run has reached that without the evaluation that ends a run: "
                f"give {self.epochs + 1} or more, or choose another run directory"
            )
        self.history[-1] = last.unevaluated()
        number = best_epoch(self.history)
        self.best, self.best_is_last = None if number is None else self.history[number], False

    def spend(self, what: str, seconds: float) -> None:
        """Add to one of the timings."""
        self.timings = dataclasses.replace(self.timings, **{what: getattr(self.timings, what) + seconds})


def to_host(tree: Tree) -> Tree:
    """Copy to the host; views would break, because the next step donates their buffers."""
    return jax.tree.map(lambda leaf: leaf if is_key(leaf) else np.array(leaf), tree)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key, which NumPy cannot hold."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def describe_run(
    parts: ModelParts,
    opt_state: Tree,
    data: Dataset | ShardedData,
    *,
    seed: int,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Describe a run, as JSON values, by everything that must match for a checkpoint to be continued.

    Args:
        parts: The model.
        opt_state: The optimizer's state (arrays or abstract arrays); the optimizer itself is not comparable.
        data: The data set, or the location of its shards.
        seed: The run's seed.
        settings: Other settings that must match.
    """
    found = dict(data.summary.description if isinstance(data, ShardedData) else describe_data(data))
    inputs = found.pop("inputs")
    taken = {name: inputs[name] for name in parts.keywords.taken(inputs)}
    return {
        "model": parts.name,
        "parameters": _types(parts.params),
        "state": _types(parts.state),
        "optimizer_state": _types(opt_state),
        "seed": seed,
        "data": {**found, **({"inputs": taken} if taken else {})},
        "settings": dict(settings),
    }


def _types(tree: Tree) -> dict[str, str]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_path_name(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def to_checkpoint(loop: LoopState, run: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the arrays, which the next epoch may overwrite, and an independent record to save.

    Args:
        loop: The state.
        run: Description from `describe_run`.
    """
    record = {
        "run": dict(run),
        "history": [entry.to_dict() for entry in loop.history],
        "best_epoch": None if loop.best is None else loop.best.epoch,
        "best_is_last": loop.best_is_last,
        "timings": dataclasses.asdict(loop.timings),
        "diverged": loop.diverged,
        "report": copy.deepcopy(loop.report),
    }
    arrays = {group: _named(getattr(loop, group)) for group in _TREES}
    if loop.carried is not None:
        arrays[_CARRIED] = loop.carried.arrays
        record[_CARRIED] = copy.deepcopy(loop.carried.record)
    return arrays, record


def from_checkpoint(
    checkpoint: Checkpoint, like: LoopState, run: Mapping[str, Any], *, to_predict: bool = False
) -> LoopState:
    """Return the saved state.

    Args:
        checkpoint: The checkpoint, read and verified.
        like: A fresh state of this run, which gives the structure.
        run: Description from `describe_run`.
        to_predict: Whether only the parameters are needed, possibly for other data; only parts that affect them are
            compared.

    Raises:
        InputError: The checkpoint belongs to another run; the message names the differences.
    """
    record = checkpoint.record
    described = {**record["run"], "settings": upgraded(record["run"]["settings"])}
    changed = differences(described, run)
    changed = {name: (old, new) for name, (old, new) in changed.items() if old is not None or name not in _UNSAID}
    if to_predict:
        changed = {name: values for name, values in changed.items() if name.startswith(_OF_PARAMETERS)}
        there, here = record["run"]["data"], run["data"]
        if changed and any(there[width] != here[width] for width in ("features", "classes")):
            raise InputError(
                f"the run was trained on data with {there['features']} features and {there['classes']} classes, "
                f"{here['name']} has {here['features']} and {here['classes']}: they must be the same to predict"
            )
    if changed:
        raise InputError(
            f"{checkpoint.path} belongs to another run ({listed(changed)}): "
            "give this run a directory of its own, or the model, data and settings of the other"
        )
    arrays = checkpoint.arrays
    history = [EpochRecord.from_dict(entry) for entry in record["history"]]
    best = record["best_epoch"]
    return LoopState(
        **{group: _restored(getattr(like, group), arrays[group], make) for group, make in _TREES.items()},
        history=history,
        best=None if best is None else history[best],
        best_is_last=record["best_is_last"],
        timings=Timings(**record["timings"]),
        diverged=record["diverged"],
        carried=Carried(arrays.get(_CARRIED, {}), record[_CARRIED], checkpoint.parts) if _CARRIED in record else None,
        report=record.get("report"),  # absent in checkpoints of earlier versions
    )


def _named(tree: Tree) -> dict[str, Any]:
    """Return path → array, with random keys as their key data."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_path_name(path): jax.random.key_data(leaf) if is_key(leaf) else leaf for path, leaf in leaves}


def _restored(like: Tree, arrays: Mapping[str, np.ndarray], make: Any) -> Tree:
    def leaf(path: Any, old: Any) -> Any:
        array = arrays[_path_name(path)]
        if is_key(old):
            return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(old))
        return make(array)

    return jax.tree_util.tree_map_with_path(leaf, like)


def _path_name(path: Any) -> str:
    """Convert a key path of JAX to a name, with parts joined by dots."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"
