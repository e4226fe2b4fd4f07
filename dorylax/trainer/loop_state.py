"""What changes while a run trains, and how it is saved and brought back bit for bit."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.config.schema import TrainConfig
from dorylax.graph.dataset import Dataset
from dorylax.program.model.base import ModelParts, Tree
from dorylax.runs.checkpoint import Checkpoint, CheckpointMismatchError
from dorylax.runs.differences import differences, listed
from dorylax.runs.directory import RunDirectoryError
from dorylax.runs.result import EpochRecord, Timings, best_epoch, improves

# Of what `describe_run` says, what parameters need to be of use: the data may be others.
_OF_PARAMETERS = ("model", "parameters.", "state.", "optimizer_state.", "settings.model.")
_SAMPLE_BYTES = 2**20
# Of a checkpoint: a group of arrays and an entry of the record, where a pipeline had something to carry.
_CARRIED = "pipeline"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Carried:
    """What a runner must find again to go on bit for bit, besides what the run's state holds.

    Attributes:
        arrays: name → NumPy array.
        record: JSON values.
    """

    arrays: dict[str, np.ndarray]
    record: dict[str, Any]


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
        best_state: of `state` after the best epoch that is evaluated however long the run is; those of the start before
            any such evaluation.
        best_is_last: the best epoch is the last, and is evaluated only because it is: its parameters are `params`, and
            a run of more epochs, which does not evaluate it, still has its own best in `best_params`.
        timings: seconds so far, over all processes of the run.
        diverged: the last step gave NaN or infinity; such a state can be looked at but not trained on.
        carried: what the runner had besides when this state was saved; None where it had nothing.
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

    @property
    def epochs(self) -> int:
        """How many epochs are finished; also the number of the next."""
        return len(self.history)

    @property
    def chosen(self) -> tuple[Tree, Tree]:
        """Parameters and carried state of the best epoch; before any evaluation the current ones, if finite."""
        unjudged = self.best is None and not self.diverged
        current = unjudged or self.best_is_last
        return (self.params, self.state) if current else (self.best_params, self.best_state)

    def add(self, record: EpochRecord, *, regular: bool = True) -> None:
        """Appends an epoch whose update is already in `params`, and keeps a copy if it is the best so far.

        Args:
            record: of the epoch.
            regular: False where it is evaluated only because it is the last.
        """
        self.history.append(record)
        if improves(record, self.best):
            self.best, self.best_is_last = record, not regular
            if regular:
                self.best_params, self.best_state = to_host(self.params), to_host(self.state)

    def go_on(self, train: TrainConfig) -> None:
        """Makes a restored state what it would be after as many epochs of a run with these settings.

        Where they go on past what was the last epoch, its evaluation is forgotten, unless they evaluate it too.

        Raises:
            RunDirectoryError: they end before, or where an epoch was trained that they evaluate and was not.
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
                f"train.epochs is {train.epochs}, but the run has come there without the evaluation that ends a run: "
                f"give {self.epochs + 1} or more, or choose another run directory"
            )
        self.history[-1] = dataclasses.replace(last, train_accuracy=None, val_accuracy=None, test_accuracy=None)
        number = best_epoch(self.history)
        self.best, self.best_is_last = None if number is None else self.history[number], False

    def spend(self, what: str, seconds: float) -> None:
        """Adds to one of the timings."""
        self.timings = dataclasses.replace(self.timings, **{what: getattr(self.timings, what) + seconds})


def to_host(tree: Tree) -> Tree:
    """Copies on the host, not views: the next step takes the buffers that those would look at."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.array(leaf), tree)


def describe_run(
    parts: ModelParts, opt_state: Tree, data: Dataset, *, seed: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same for a checkpoint to be continued, as JSON values.

    Args:
        parts: the model.
        opt_state: the optimizer's state (arrays or their abstract shapes); what made it cannot be compared.
        data: the data set.
        seed: the run's seed.
        settings: anything else, from the configuration.
    """
    inputs = {**data.vertex_inputs, **data.edge_inputs}
    taken = {name: _digest(inputs[name]) for name in parts.keywords.taken(inputs)}
    split = hashlib.sha256()
    for array in (data.labels, data.train_mask, data.val_mask, data.test_mask):
        split.update(np.ascontiguousarray(array).tobytes())
    return {
        "model": parts.name,
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
            "graph": _digest(data.graph.incoming.offsets, data.graph.incoming.neighbours),
            "feature_values": _digest(data.features),
            **({"inputs": taken} if taken else {}),
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
        "best_is_last": loop.best_is_last,
        "timings": dataclasses.asdict(loop.timings),
        "diverged": loop.diverged,
    }
    arrays = {group: _named(tree) for group, tree in trees.items()}
    if loop.carried is not None:
        arrays[_CARRIED] = loop.carried.arrays
        record[_CARRIED] = loop.carried.record
    return arrays, record


def from_checkpoint(
    checkpoint: Checkpoint, like: LoopState, run: Mapping[str, Any], *, to_predict: bool = False
) -> LoopState:
    """The state that was saved.

    Args:
        checkpoint: read and verified.
        like: a state of this run (a fresh one), for structure.
        run: from `describe_run`.
        to_predict: only the parameters are wanted, perhaps for other data: compare only what they need.

    Raises:
        CheckpointMismatchError: it belongs to another run; names what differs.
    """
    record = checkpoint.record
    changed = differences(record["run"], run)
    if to_predict:
        changed = {name: values for name, values in changed.items() if name.startswith(_OF_PARAMETERS)}
        if changed:
            _check_widths(checkpoint, run)
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
        best_is_last=record["best_is_last"],
        timings=Timings(**record["timings"]),
        diverged=record["diverged"],
        carried=Carried(arrays.get(_CARRIED, {}), record[_CARRIED]) if _CARRIED in record else None,
    )


def _check_widths(checkpoint: Checkpoint, run: Mapping[str, Any]) -> None:
    """Says in the user's terms why parameters do not fit a data set."""
    there, here = checkpoint.record["run"]["data"], run["data"]
    if any(there[width] != here[width] for width in ("features", "classes")):
        raise CheckpointMismatchError(
            f"the run was trained on data with {there['features']} features and {there['classes']} classes, "
            f"{here['name']} has {here['features']} and {here['classes']}: they must be the same to predict"
        )


def _digest(*arrays: Any) -> str:
    """Of shapes, dtypes and contents; of a large array, about a megabyte of elements evenly spread over it."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        step = -(-array.nbytes // _SAMPLE_BYTES) or 1
        while array.ndim and step > 1 and math.gcd(step, array.shape[-1]) > 1:  # else it would miss whole columns
            step += 1
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array.reshape(-1)[::step]).tobytes())
    return digest.hexdigest()[:16]


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
