"""How a pipeline runs: one frozen set of numbers and names, checked whole before anything is computed.

The same keys are those of the section `pipeline` of a configuration (`dorylax.config`); docs/configuration.md says what
each does. What the values cause is up to the engine.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import typing
from typing import Any, Literal, final

from dorylax.errors import DorylaxError
from dorylax.serverless.config import ELSEWHERE, TensorConfig, TensorConfigError

Mode = Literal["no-pipe", "pipe", "async"]
Update = Literal["per_epoch", "per_interval"]
ClockKind = Literal["real", "virtual"]
Partitioner = Literal["metis", "ldg", "range", "random"]
Balance = Literal["vertices", "edges"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": typing.get_args(Mode),
    "update": typing.get_args(Update),
    "clock": typing.get_args(ClockKind),
    "partitioner": typing.get_args(Partitioner),
    "balance": typing.get_args(Balance),
}
_LEAST = {
    "servers": 1,
    "intervals": 1,
    "staleness": 0,
    "sync_every": 1,
    "parameter_servers": 1,
    "graph_threads": 1,
    "edge_chunk": 1,
}
_FLAGS = ("interval_step_scaling", "reorder")


class PipelineConfigError(DorylaxError, ValueError):
    """A pipeline that cannot be run; its text is one line for the user.

    Attributes:
        key: the dotted key that is wrong, `pipeline.staleness`.
    """

    def __init__(self, key: str, problem: str) -> None:
        self.key = f"pipeline.{key}"
        super().__init__(f"{self.key} {problem}")


@final
@dataclasses.dataclass(frozen=True)
class PipelineConfig:
    """How training is spread over servers and intervals (Dorylus, OSDI '21, sections 4 and 5).

    What is not given is filled in, so that equal pipelines are equal objects: `staleness` and `update`.

    Attributes:
        servers: graph servers P, ≥ 1; each owns a part of the vertices.
        intervals: of each server, ≥ 1, of equal vertex counts; what one server works on at a time.
        mode: "no-pipe": one task at a time on each server; "pipe": tasks of different kinds overlap, every scatter is a
            barrier; "async": intervals may be up to `staleness` epochs apart.
        staleness: S ≥ 0 of "async", 0 by default: an interval may start epoch e while e ≤ min_epoch + S. None otherwise.
        update: one optimizer step "per_epoch" (the default), or, with "async", one "per_interval".
        interval_step_scaling: scale the steps of "per_interval" so that those of an epoch move as far as one of
            "per_epoch".
        sync_every: complete gradients that the first parameter server forwards at once to the others, ≥ 1.
        parameter_servers: how many hold the weights, ≥ 1.
        clock: "real": wall time; "virtual": every task computes its numbers and takes the time that `cluster` says.
        cluster: name of a `dorylax.cost` cluster, or the path of a YAML file that describes one: how long things take on the
            virtual clock, and the prices of the bill. Not of inline tasks on the real clock, which cost nothing.
        partitioner: how vertices are spread over servers.
        balance: what every server has equally many of.
        partition: the folder of a saved partition, in place of `partitioner` and `balance`.
        graph_threads: of each server, ≥ 1; None: its share of this machine's cores on the real clock, the cluster's number
            on the virtual.
        edge_chunk: edges that an edge stage computes at once, ≥ 1.
        reorder: with "async", allow the pass `reorder` all the same, which moves weights across gathers and so mixes weight
            versions of neighbours; without "async" it is always allowed.
        switch_margin: go on synchronously once the validation accuracy is within this fraction of
            `train.target_accuracy`, in (0, 1); None: never. Of "async" only.
        tensor: where tensor tasks run, and what is done when they are late; a section of its own in configurations.

    Raises:
        PipelineConfigError: a value out of range, or one that the others make meaningless; names the key.
    """

    servers: int = 1
    intervals: int = 8
    mode: Mode = "pipe"
    staleness: int | None = None
    update: Update | None = None
    interval_step_scaling: bool = True
    sync_every: int = 1
    parameter_servers: int = 1
    clock: ClockKind = "real"
    cluster: str = "default"
    partitioner: Partitioner = "metis"
    balance: Balance = "vertices"
    partition: str | os.PathLike[str] | None = None
    graph_threads: int | None = None
    edge_chunk: int = 65536
    reorder: bool = False
    switch_margin: float | None = None
    tensor: TensorConfig = dataclasses.field(default_factory=TensorConfig)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            _check_choice(name, getattr(self, name), choices)
        for name, least in _LEAST.items():
            _check_count(name, getattr(self, name), least, optional=_DEFAULTS[name] is None)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise PipelineConfigError(name, f"must be true or false, got {getattr(self, name)!r}")
        self._check_mode()
        self._check_partition()
        self._check_tensor()
        self._check_cluster()
        if self.partition is not None:
            object.__setattr__(self, "partition", os.fspath(self.partition))
        if self.mode == "async" and self.staleness is None:
            object.__setattr__(self, "staleness", 0)
        if self.update is None:
            object.__setattr__(self, "update", "per_epoch")

    @property
    def synchronous(self) -> bool:
        """Whether every epoch begins where all intervals have finished the one before."""
        return self.mode != "async"

    @property
    def may_reorder(self) -> bool:
        """Whether the pass `reorder` may be applied to the program."""
        return self.synchronous or self.reorder

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes of `dorylax.program` that pay.

        Those that spare what is shipped to workers by computing it again do not where workers share this process's
        memory: inline on the real clock. (The virtual clock stands for functions elsewhere.)
        """
        from dorylax.program.passes import PASSES

        left_out = set() if self.may_reorder else {"reorder"}
        if self.tensor.backend == "inline" and self.clock == "real":
            left_out |= {"rematerialise", "sink", "cut"}
        return tuple(name for name in PASSES if name not in left_out)

    def to_dict(self) -> dict[str, Any]:
        """The fields but `tensor`, in order, as YAML may carry them; with `tensor` they make an equal `PipelineConfig`."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "tensor"}

    def dotted(self) -> dict[str, Any]:
        """All fields as the sections `pipeline` and `tensor` of a configuration have them, by dotted key."""
        return {
            **{f"pipeline.{name}": value for name, value in self.to_dict().items()},
            **{f"tensor.{name}": value for name, value in self.tensor.to_dict().items()},
        }

    def _check_mode(self) -> None:
        if self.mode != "async":
            for name in ("staleness", "switch_margin"):
                value = getattr(self, name)
                if value is not None:
                    raise PipelineConfigError(
                        name, f"= {value} needs pipeline.mode=async, got {self.mode}: change one of them"
                    )
            if self.update == "per_interval":
                raise PipelineConfigError(
                    "update", f"= per_interval needs pipeline.mode=async, got {self.mode}, whose update is per_epoch"
                )
            if self.reorder:
                raise PipelineConfigError(
                    "reorder",
                    f"= true needs pipeline.mode=async, got {self.mode}, which always reorders: leave it away",
                )
        if not self.interval_step_scaling and self.update != "per_interval":
            raise PipelineConfigError(
                "interval_step_scaling", "= false needs pipeline.update=per_interval: change one of them"
            )
        margin = self.switch_margin
        if margin is not None:
            if isinstance(margin, bool) or not isinstance(margin, int | float) or not math.isfinite(margin):
                raise PipelineConfigError("switch_margin", f"must be a number > 0 and < 1, got {margin!r}")
            if not 0 < margin < 1:
                raise PipelineConfigError("switch_margin", f"must be a fraction > 0 and < 1, got {margin}")

    def _check_partition(self) -> None:
        if self.partition is None:
            return
        if not isinstance(self.partition, str | os.PathLike) or not os.fspath(self.partition):
            raise PipelineConfigError("partition", f"must be the folder of a saved partition, got {self.partition!r}")
        for name in ("partitioner", "balance"):
            if getattr(self, name) != _DEFAULTS[name]:
                raise PipelineConfigError(
                    "partition", f"is made already, so pipeline.{name} says nothing: leave one of them away"
                )

    def _check_cluster(self) -> None:
        if self.clock == "real" and self.tensor.backend == "inline":
            if self.cluster != _DEFAULTS["cluster"]:
                raise PipelineConfigError(
                    "cluster",
                    f"= {self.cluster} needs pipeline.clock=virtual, got real, or "
                    f"tensor.backend={' or '.join(ELSEWHERE)}, which is billed by its prices: change one of them",
                )
            return
        from dorylax.cost import ClusterError, find_cluster

        try:
            find_cluster(self.cluster)
        except ClusterError as error:
            raise PipelineConfigError("cluster", f"cannot be used: {error}") from None

    def _check_tensor(self) -> None:
        if not isinstance(self.tensor, TensorConfig):
            raise TypeError(
                f"tensor must be a dorylax.serverless.config.TensorConfig, got {type(self.tensor).__name__}"
            )
        if self.clock == "virtual" and self.tensor.backend != "inline":
            raise TensorConfigError(
                "backend",
                f"= {self.tensor.backend} needs pipeline.clock=real, got virtual, where tasks take the time that "
                "the cluster's model says: change one of them",
            )


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(PipelineConfig)}


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value in choices or (value is None and _DEFAULTS[name] is None):
        return
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise PipelineConfigError(name, f"must be one of {', '.join(choices)}, got {value!r}{hint}")


def _check_count(name: str, value: Any, least: int, *, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise PipelineConfigError(name, f"must be a whole number ≥ {least}, got {value!r}")
    if value < least:
        raise PipelineConfigError(name, f"must be ≥ {least}, got {value}")
