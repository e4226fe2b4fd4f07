"""Settings of a pipeline: the section `pipeline` of a configuration."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, final

from annotated_types import Unit
from pydantic import Field, InstanceOf, model_validator

from dorylax.cost import find_cluster
from dorylax.graph.partition.partitioners import Method
from dorylax.graph.partition.simple import Balance
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.backends.catalogue import BACKENDS, ELSEWHERE
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.settings.section import EXTERNAL, Count, PathText, Positive, Section, Text

Mode = Literal["no-pipe", "pipe", "async"]
Update = Literal["per_epoch", "per_interval"]
FreshnessOf = Literal["all", "server"]
Prediction = Literal["none", "linear", "optimizer"]
ClockKind = Literal["real", "virtual"]
HostsKind = Literal["inline", "processes", "ray"]
Recovery = Literal["restart", "rerun", "reroute"]
TraceKind = Literal["off", "sample", "full"]

_OF_RAY_HOSTS, _OF_RAY_WORKERS = ("hosts_per_node", "cpus", "memory", "resource"), ("worker_cpus",)

ASYNC_DEFAULTS = {"staleness": 1, "freshness": 0.8, "predict_weights": "optimizer"}
"""Defaults in mode `async`; in the other modes these settings have no meaning and stay null."""


@final
class PipelineConfig(Section):
    """Settings for the distribution of training over servers and intervals (Dorylus, OSDI '21, sections 4 and 5).

    Validation replaces null with the defaults of the mode, so that equal pipelines are equal objects. `tensor` configures
    tensor tasks and `ray` the Ray cluster; they are separate sections in configurations.

    Raises:
        ConfigError: A value is out of range, or meaningless in combination with others; the error names the key.
    """

    section: ClassVar[str] = "pipeline"

    servers: Count = Field(default=1, description="graph servers; each owns a part of the vertices")
    intervals: Count = Field(default=8, description="intervals per server, with equal numbers of vertices")
    hosts: HostsKind = Field(
        default="inline",
        description="where servers run: inline: in this process; processes: in separate processes on this machine; ray: in "
        "separate processes on a Ray cluster",
    )
    num_hosts: Count | None = Field(
        default=None,
        description="number of hosts if `pipeline.hosts` is not inline; graph and parameter servers are assigned to them "
        "round-robin; null: a host per server of either kind",
    )
    mode: Mode = Field(
        default="pipe",
        description="no-pipe: each server runs one task at a time; pipe: tasks overlap, epochs do not; async: intervals may "
        "be up to `pipeline.staleness` epochs apart",
    )
    staleness: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="S in async: an interval may start epoch e while e ≤ min_epoch + S; null: 1 with async",
    )
    freshness: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="with async, a gather starts when this share of the blocks that it reads is of its epoch: 0 never "
        "waits, 1 is the barrier of pipe; null: 0.8 with async",
    )
    freshness_of: FreshnessOf = Field(
        default="all",
        description="blocks that `pipeline.freshness` counts: all that a gather reads, or those of the same server, so that "
        "only ghosts may be late",
    )
    smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="with async, the decay of an exponential mean over epochs of the rows and sums that peers send; 0: the "
        "newest",
    )
    predict_weights: Prediction | None = Field(
        default=None,
        description="with async, the weights of an interval that runs ahead of the newest ones: the newest (none), or "
        "predicted from their last change (linear) or from further optimizer steps with the last gradient (optimizer), "
        "which need per_epoch; null: optimizer with async and per_epoch, none with per_interval",
    )
    gradient_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="with async and per_epoch, the share of the intervals' gradients that an epoch's step waits for; the "
        "last gradient of an interval replaces a late one",
    )
    ahead_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0,
        description="with async and per_epoch, the share of the intervals that may start an epoch before the step of the "
        "previous epoch; the others wait for its weights",
    )
    stability_gate: bool = Field(
        default=True,
        description="with async and per_epoch, intervals run ahead and read older rows only while the measured curvature of "
        "the loss is low; before that, and while it is high, they train as with pipe; false: always",
    )
    update: Update | None = Field(
        default=None,
        description="one optimizer step per epoch, or per interval and epoch (async only); null: per_epoch",
    )
    interval_step_scaling: bool = Field(
        default=True,
        description="scale the steps of per_interval so that an epoch of them moves as far as one step of per_epoch",
    )
    sync_every: Count = Field(
        default=1, description="gradients that the first parameter server forwards to the others at a time"
    )
    parameter_servers: Count = Field(default=1, description="servers that hold the weights, each a full copy")
    clock: ClockKind = Field(
        default="real",
        description="real: wall time; virtual: tasks compute, and take the time from the cluster's model",
    )
    cluster: Text = Field(
        default="default",
        description="a cluster's name, or a YAML file that describes one: its speeds set the virtual clock, its prices "
        "the bill; not for inline tasks on the real clock",
    )
    partitioner: Method = Field(default="metis", description="how vertices are spread over servers")
    balance: Balance = Field(default="vertices", description="which number is equal on all servers")
    partition: PathText | None = Field(
        default=None, description="folder of a saved partition, in place of `partitioner` and `balance`"
    )
    graph_threads: Count | None = Field(
        default=None,
        description="threads per server for graph tasks; null: its share of the cores, on the virtual clock the cluster's",
    )
    edge_chunk: Count = Field(
        default=65536,
        description="edges per call of an edge stage, and the fewest edges of a piece of a gather",
    )
    reorder: bool = Field(
        default=True,
        description="move products across sums over neighbours, to gather fewer bytes; false: keep the model's order",
    )
    hoist: bool = Field(
        default=True,
        description="compute graph operators on constant data once; false: in every epoch",
    )
    fuse: bool = Field(
        default=True,
        description="join the stages of one level into one task: one call for the last layer's forward and backward pass; "
        "stages with little arithmetic for their bytes run on the graph server",
    )
    rematerialise: bool = Field(
        default=True,
        description="remote backward stages compute forward values again if that is cheaper than to send them",
    )
    stale_price: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="with async, the extra cost of a stale gathered byte, as a multiple of the cost to gather it, in the "
        "pass `reorder`; 0: none",
    )
    switch_margin: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="continue synchronously once validation accuracy is at most this far below `train.target_accuracy` "
        "(0.01: one point; async only); null: never",
    )
    trace: TraceKind = Field(
        default="sample",
        description="which epochs' tasks are in the run directory's trace.json; sample: all at first, then fewer and fewer, "
        "in 128 MiB at most; full: all, however many bytes that takes; off: none",
        json_schema_extra=EXTERNAL,
    )
    host_timeout: Annotated[Positive, Unit("seconds")] = Field(
        default=30.0,
        description="if `pipeline.hosts` is not inline: seconds without a reply after which a host is lost; a host whose "
        "process has ended is lost immediately",
    )
    max_losses: Annotated[int, Field(ge=0)] = Field(
        default=3,
        description="if `pipeline.hosts` is not inline: the most losses without a finished epoch in between that a run "
        "survives",
    )
    recovery: Recovery = Field(
        default="rerun",
        description="if `pipeline.hosts` is not inline, after a loss: restart: replacements begin from the newest "
        "checkpoint; rerun: replacements begin from the newest weights and repeat the unfinished epoch; reroute: the "
        "remaining hosts repeat it at once, and replacements join between two later epochs",
        json_schema_extra=EXTERNAL,
    )
    tensor: InstanceOf[TensorConfig] = TensorConfig()
    ray: InstanceOf[RayConfig] = RayConfig()

    @property
    def synchronous(self) -> bool:
        """Whether every epoch starts only after all intervals have finished the previous one."""
        return self.mode != "async"

    @property
    def expected_stale_price(self) -> float:
        """Expected `stale_price` of a byte, over fresh and stale reads.

        Without waiting, about half of all rows read are of the current epoch, because a gathering interval is on average in
        the middle of its peers.
        """
        return 0.0 if self.synchronous else self.stale_price * (1 - (self.freshness or 0.0)) / 2

    @property
    def gated(self) -> bool:
        """Whether a stability gate controls running ahead."""
        return self.stability_gate and self.mode == "async" and self.update == "per_epoch"

    @property
    def passes(self) -> tuple[str, ...]:
        """Profitable passes of `dorylax.program`.

        Passes that recompute values to send less to workers are excluded if workers share this process's memory: inline on
        the real clock. The virtual clock simulates remote functions, if its cluster has any.
        """
        return self.passes_where(ships=self.workers and (self.tensor.backend != "inline" or self.clock == "virtual"))

    def passes_where(self, *, ships: bool) -> tuple[str, ...]:
        """Return the profitable passes that are not disabled.

        Args:
            ships: Whether inputs and outputs of stages are sent to workers and back.
        """
        from dorylax.program.passes import PASSES  # imported late: settings do not import JAX

        left_out = {name for name in ("reorder", "hoist", "fuse", "rematerialise") if not getattr(self, name)}
        if not ships:
            left_out |= {"rematerialise", "sink", "cut"}
        return tuple(name for name in PASSES if name not in left_out)

    @property
    def workers(self) -> bool:
        """Whether tensor workers run the stages intended for them; false for a virtual cluster without functions."""
        return self.clock == "real" or find_cluster(self.cluster).functions > 0

    @property
    def runs_stages(self) -> bool:
        """Whether this process may run every stage: inline, or because servers may run the stages intended for workers."""
        return self.tensor.backend == "inline" or self.tensor.placement != "functions"

    @property
    def has_functions(self) -> bool:
        """Whether functions exist, real or simulated, in addition to threads of this process or machine."""
        remote = self.clock == "virtual" or self.tensor.backend != "inline"
        return remote and find_cluster(self.cluster).ships

    @property
    def on_ray(self) -> bool:
        """Whether servers or workers run on a Ray cluster."""
        return self.hosts == "ray" or BACKENDS[self.tensor.backend].on_ray

    @property
    def sections(self) -> tuple[Section, ...]:
        """Sections that describe the pipeline in a configuration; `ray` only if servers or workers run on Ray."""
        return (self, self.tensor, self.ray) if self.on_ray else (self, self.tensor)

    def dotted(self) -> dict[str, Any]:
        """Return all settings of `sections` by dotted key."""
        return {part.key(name): value for part in self.sections for name, value in part.to_dict().items()}

    @model_validator(mode="after")
    def _check(self) -> PipelineConfig:
        filled: dict[str, Any] = {"update": "per_epoch"}
        if self.mode == "async":
            filled |= ASYNC_DEFAULTS
            if self.update == "per_interval":
                filled["predict_weights"] = "none"
        for name, value in filled.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        self._check_mode()
        self._check_hosts()
        self._check_partition()
        self._check_clock()
        self._check_ray()
        self._check_functions()
        return self

    def _check_mode(self) -> None:
        if self.synchronous:
            for name in (*ASYNC_DEFAULTS, "switch_margin"):
                if (value := getattr(self, name)) is not None:
                    raise _conflict(f"pipeline.{name}", value, "pipeline.mode=async", self.mode)
            for name in (
                "freshness_of",
                "smoothing",
                "gradient_share",
                "ahead_share",
                "stability_gate",
                "stale_price",
            ):
                if not self._is_default(name):
                    raise _conflict(f"pipeline.{name}", getattr(self, name), "pipeline.mode=async", self.mode)
            if self.update == "per_interval":
                raise ConfigError.of(
                    "pipeline.update",
                    f"= per_interval needs pipeline.mode=async, got {self.mode}, whose update is per_epoch",
                )
        if self.freshness_of != "all" and not self.freshness:
            raise ConfigError.of(
                "pipeline.freshness_of",
                f"= {self.freshness_of} needs pipeline.freshness > 0, which says how much of it has to be fresh: give both",
            )
        if self.predict_weights not in (None, "none") and self.update == "per_interval":
            got = "per_interval, whose versions are no epochs"
            raise _conflict("pipeline.predict_weights", self.predict_weights, "pipeline.update=per_epoch", got)
        for name in ("gradient_share", "ahead_share", "stability_gate"):
            if not self._is_default(name) and self.update == "per_interval":
                got = "per_interval, which has no step of an epoch"
                raise _conflict(f"pipeline.{name}", getattr(self, name), "pipeline.update=per_epoch", got)
        if self.gradient_share < 1 and self.staleness == 0:
            got = "0, with which whoever is late is waited for"
            raise _conflict("pipeline.gradient_share", self.gradient_share, "pipeline.staleness ≥ 1", got)
        if not self.interval_step_scaling and self.update != "per_interval":
            raise ConfigError.of(
                "pipeline.interval_step_scaling", "= false needs pipeline.update=per_interval: change one of them"
            )

    def _check_hosts(self) -> None:
        for name in ("host_timeout", "max_losses", "recovery"):
            if self.hosts == "inline" and not self._is_default(name):
                got = "inline, where no host can be lost alone"
                raise _conflict(f"pipeline.{name}", getattr(self, name), "pipeline.hosts=processes or ray", got)
        if self.num_hosts is None:
            return
        if self.hosts == "inline":
            got = "inline, which has none"
            raise _conflict("pipeline.num_hosts", self.num_hosts, "pipeline.hosts=processes", got)
        if self.num_hosts > (most := self.servers + self.parameter_servers):
            raise ConfigError.of(
                "pipeline.num_hosts",
                f"must be ≤ {most}, pipeline.servers and pipeline.parameter_servers together, got {self.num_hosts}",
            )

    def _check_partition(self) -> None:
        for name in ("partitioner", "balance"):
            if self.partition is not None and not self._is_default(name):
                raise ConfigError.of(
                    "pipeline.partition", f"is made already, so pipeline.{name} says nothing: leave one of them out"
                )

    def _check_clock(self) -> None:
        if self.clock == "virtual" and self.hosts != "inline":
            got = "virtual, which simulates servers in one process"
            raise _conflict("pipeline.hosts", self.hosts, "pipeline.clock=real", got)
        if self.clock == "virtual" and self.tensor.backend != "inline":
            got = "virtual, where tasks take the time that the cluster's model says"
            raise _conflict("tensor.backend", self.tensor.backend, "pipeline.clock=real", got)
        if self.clock == "real" and self.tensor.backend == "inline":
            if self.tensor.streaming:
                raise ConfigError.of(
                    "tensor.streaming",
                    f"= true needs tensor.backend={' or '.join(ELSEWHERE)}, or pipeline.clock=virtual: inline on the real "
                    "clock no rows travel; change one of them",
                )
            if not self._is_default("cluster"):
                raise ConfigError.of(
                    "pipeline.cluster",
                    f"= {self.cluster} needs pipeline.clock=virtual, got real, or "
                    f"tensor.backend={' or '.join(ELSEWHERE)}, which is billed by its prices: change one of them",
                )
            return
        try:
            find_cluster(self.cluster)
        except ConfigError as error:
            raise ConfigError.of("pipeline.cluster", f"cannot be used: {error}") from None

    def _check_ray(self) -> None:
        for name, field in self.ray.options().items():
            value = getattr(self.ray, name)
            users = {"pipeline.hosts": self.hosts, "tensor.backend": self.tensor.backend}
            if name in _OF_RAY_HOSTS:
                del users["tensor.backend"]
            elif name in _OF_RAY_WORKERS:
                del users["pipeline.hosts"]
            if value != field.default and "ray" not in users.values():
                needed = " or ".join(f"{key}=ray" for key in users)
                raise _conflict(f"ray.{name}", value, needed, " and ".join(users.values()))

    def _check_functions(self) -> None:
        """Check the address at which functions reach the servers."""
        if self.tensor.backend != "aws":
            return
        host = self.tensor.host
        if self.hosts == "ray" and host is not None:
            raise ConfigError.of(
                "tensor.host",
                f"= {host} is the address of one machine, but with pipeline.hosts=ray functions reach each server at its "
                "node's: leave it out",
            )
        if self.hosts != "ray" and host is None:
            raise ConfigError.of(
                "tensor.host",
                "must be the address by which functions find this machine, its private one in their VPC; got none",
            )

    def _is_default(self, name: str) -> bool:
        return bool(getattr(self, name) == type(self).model_fields[name].default)


def _conflict(key: str, value: Any, needed: str, got: str) -> ConfigError:
    """Return the error for a setting that needs another value of a different setting."""
    return ConfigError.of(key, f"= {value} needs {needed}, got {got}: change one of them")
