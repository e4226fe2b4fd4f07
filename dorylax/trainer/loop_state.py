"""What changes while a run trains, and how it is saved and brought back bit for bit."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.checkpoint import Checkpoint, CheckpointMismatchError
from dorylax.graph.dataset import Dataset
from dorylax.run_directory import differences, listed
from dorylax.trainer.model_parts import ModelParts, Tree
from dorylax.trainer.result import EpochRecord, Timings, improves


@final
@dataclasses.dataclass
class LoopState:
    """A run between two epochs.

    Attributes:
        params: current parameters, on the device.
        opt_state: the optimizer's state.
        state: the model's other carried state.
        history: the epochs so far.
        best: the record of the best epoch so far; None before any evaluation.
        best_params: copies, on the host, of `params` and
        best_state: of `state` after that epoch; those of the start before any evaluation.
        timings: seconds so far, over all processes of the run.
        diverged: the last step gave NaN or infinity; such a state can be looked at but not trained on.
    """

    params: Tree
    opt_state: Tree
    state: Tree
    best_params: Tree
    best_state: Tree
    history: list[EpochRecord] = dataclasses.field(default_factory=list)
    best: EpochRecord | None = None
    timings: Timings = dataclasses.field(default_factory=Timings)
    diverged: bool = False

    @property
    def epochs(self) -> int:
        """How many epochs are finished; also the number of the next."""
        return len(self.history)

    @property
    def chosen(self) -> tuple[Tree, Tree]:
        """Parameters and carried state of the best epoch; before any evaluation the current ones, if finite."""
        unjudged = self.best is None and not self.diverged
        return (self.params, self.state) if unjudged else (self.best_params, self.best_state)

    def add(self, record: EpochRecord) -> None:
        """Appends an epoch whose update is already in `params`, and keeps a copy if it is the best so far."""
        self.history.append(record)
        if improves(record, self.best):
            self.best = record
            self.best_params, self.best_state = to_host(self.params), to_host(self.state)

    def spend(self, what: str, seconds: float) -> None:
        """Adds to one of the timings."""
        self.timings = dataclasses.replace(self.timings, **{what: getattr(self.timings, what) + seconds})


def to_host(tree: Tree) -> Tree:
    """Copies on the host, not views: the next step takes the buffers that those would look at."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.array(leaf), tree)


def describe_run(
    parts: ModelParts, opt_state: Tree, data: Dataset, *, model: str, seed: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same for a checkpoint to be continued, as JSON values.

    Args:
        parts: the model.
        opt_state: the optimizer's state (arrays or their abstract shapes); what made it cannot be compared.
        data: the data set.
        model: the name of the model's class.
        seed: the run's seed.
        settings: anything else, from the configuration.
    """
    split = hashlib.sha256()
    for array in (data.labels, data.train_mask, data.val_mask, data.test_mask):
        split.update(np.ascontiguousarray(array).tobytes())
    return {
        "model": model,
        "parameters": _types(parts.params),
        "state": _types(parts.state),
        "optimizer_state": _types(opt_state),
        "seed": seed,
        "data": {
            "name": data.name,
            "vertices": data.graph.num_vertices,
            "edges": data.graph.num_edges,
            "features": data.num_features,
            "classes": data.num_classes,
            "labels_and_masks": split.hexdigest()[:16],
        },
        "settings": dict(settings),
    }


def to_checkpoint(loop: LoopState, run: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The arrays and the record to save; `run` is from `describe_run`."""
    trees = {
        "params": loop.params,
        "opt_state": loop.opt_state,
        "state": loop.state,
        "best_params": loop.best_params,
        "best_state": loop.best_state,
    }
    record = {
        "run": dict(run),
        "history": [entry.to_dict() for entry in loop.history],
        "best_epoch": None if loop.best is None else loop.best.epoch,
        "timings": dataclasses.asdict(loop.timings),
        "diverged": loop.diverged,
    }
    return {group: _named(tree) for group, tree in trees.items()}, record


def from_checkpoint(checkpoint: Checkpoint, like: LoopState, run: Mapping[str, Any]) -> LoopState:
    """The state that was saved.

    Args:
        checkpoint: read and verified.
        like: a state of this run (a fresh one), for structure.
        run: from `describe_run`.

    Raises:
        CheckpointMismatchError: it belongs to another run; names what differs.
    """
    record = checkpoint.record
    changed = differences(record["run"], run)
    if changed:
        raise CheckpointMismatchError(
            f"{checkpoint.path} belongs to another run ({listed(changed)}): "
            "give this run a directory of its own, or the model, data and settings of the other"
        )
    arrays = checkpoint.arrays
    history = [EpochRecord.from_dict(entry) for entry in record["history"]]
    best = record["best_epoch"]
    return LoopState(
        params=_restored(like.params, arrays["params"], jnp.array),
        opt_state=_restored(like.opt_state, arrays["opt_state"], jnp.array),
        state=_restored(like.state, arrays["state"], jnp.array),
        best_params=_restored(like.best_params, arrays["best_params"], np.asarray),
        best_state=_restored(like.best_state, arrays["best_state"], np.asarray),
        history=history,
        best=None if best is None else history[best],
        timings=Timings(**record["timings"]),
        diverged=record["diverged"],
    )


def _named(tree: Tree) -> dict[str, Any]:
    """Path → array; random keys as their words."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): jax.random.key_data(leaf) if _is_key(leaf) else leaf for path, leaf in leaves}


def _restored(like: Tree, arrays: Mapping[str, np.ndarray], make: Any) -> Tree:
    def leaf(path: Any, old: Any) -> Any:
        array = arrays[_name(path)]
        if _is_key(old):
            return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(old))
        return make(array)

    return jax.tree_util.tree_map_with_path(leaf, like)


def _types(tree: Tree) -> dict[str, str]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
