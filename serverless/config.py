"""Where tensor tasks run and how they are watched: the section `tensor` of a configuration."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, final

from annotated_types import Unit
from pydantic import Field, model_validator

from dorylax.net.link import MOST_SIGMA
from dorylax.serverless.backends.catalogue import BACKENDS, BackendName
from dorylax.settings.errors import ConfigError, shown
from dorylax.settings.section import Count, Positive, Section, Text

LONGEST_CALL = 900.0
"""Seconds that AWS Lambda lets a function run at most (AWS's documentation, July 2026)."""

MOST_QUANTILE = 0.99
"""Largest quantile of the last 200 calls that says something."""

PlacementKind = Literal["auto", "servers", "functions"]
TransportName = Literal["ipc", "tcp"]

_ALL_INTERFACES = ("*", "0.0.0.0", "::", "[::]")


@final
class TensorConfig(Section):
    """Where tensor tasks run, and what is done when they are late or lost (Dorylus, OSDI '21, section 6).

    Raises:
        ConfigError: a value out of range, or one that the backend makes meaningless; names the key.
    """

    section: ClassVar[str] = "tensor"

    backend: BackendName = Field(
        default="inline",
        description="; ".join(
            ["where tensor tasks run", *(f"{name}: {entry.what}" for name, entry in BACKENDS.items())]
        ),
    )
    placement: PlacementKind = Field(
        default="auto",
        description="which stages run on functions; auto: those that pay by the time model and by measured durations, "
        "decided for every epoch; servers: none; functions: those with much arithmetic for their bytes",
    )
    price_weight: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="auto minimises seconds · dollars to this power; 0: time alone; 1: the inverse of Dorylus' value",
    )
    workers: Count | None = Field(
        default=None,
        description="processes for local, sandboxes for emulator and aws, actors for ray; null: half of the cores, for ray "
        "half of the cluster's CPUs, 100 for aws",
    )
    slots: Count | None = Field(
        default=None,
        description="each graph server's concurrent calls; null: inline its share of the cores, on the virtual clock the "
        "cluster's functions; elsewhere its share of the workers",
    )
    autotune: bool = Field(
        default=False, description="fewer concurrent calls while graph tasks queue up, more while they drain (Dorylus)"
    )
    attempts: Count = Field(default=10, description="failed calls of one task after which the run fails")
    deadline: Annotated[Positive, Unit("seconds")] | None = Field(
        default=None, description="seconds after which a call counts as failed; null: never inline, 900 elsewhere"
    )
    hedge_quantile: Annotated[float, Field(gt=0, le=MOST_QUANTILE)] = Field(
        default=0.95,
        description="call a task again when its call takes longer than this share of its stage's last 200 calls, and take "
        "the first answer",
    )
    relaunches: Annotated[int, Field(ge=0)] = Field(default=1, description="most relaunches of a task; 0: never")
    transport: TransportName = Field(
        default="ipc", description="how workers fetch data; tcp: loopback, encrypted with keys made for the run"
    )
    latency: Annotated[float, Field(ge=0), Unit("seconds")] = Field(
        default=0.0, description="seconds that each worker request takes on top of its bytes, in the median"
    )
    latency_sigma: Annotated[float, Field(ge=0, le=MOST_SIGMA)] = Field(
        default=0.0,
        description="standard deviation of the logarithm of such latencies; at 0.6 the slowest hundredth takes 4 times "
        "the median",
    )
    bandwidth: Annotated[Positive, Unit("bytes per second")] | None = Field(
        default=None, description="bytes per second of each worker; null: unlimited"
    )
    cold_start: Annotated[float, Field(ge=0), Unit("seconds")] = Field(
        default=0.0, description="extra seconds that a worker takes to start"
    )
    streaming: bool = Field(
        default=False, description="workers compute on the first half of the rows while the second half arrives"
    )
    function: Text = Field(default="dorylax", description="aws only: the function's name, name:alias or ARN")
    region: Text | None = Field(default=None, description="aws only: where the function is; null: as boto3 finds it")
    host: Text | None = Field(
        default=None,
        description="aws only: the address at which functions reach this machine; null with `pipeline.hosts=ray`, where "
        "they reach each server at its node's",
    )
    artefacts: Text | None = Field(
        default=None, description="aws only: s3://bucket/prefix that holds the stages; null: graph servers serve them"
    )

    @model_validator(mode="after")
    def _check(self) -> TensorConfig:
        for name, field in self.options().items():
            backends = [backend for backend, entry in BACKENDS.items() if name in entry.settings]
            value = getattr(self, name)
            if backends and self.backend not in backends and value != field.default:
                written = value if isinstance(value, str) else shown(value)
                problem = (
                    f"= {written} needs tensor.backend={' or '.join(backends)}; got {self.backend}: change one of them"
                )
                raise ConfigError.of(f"tensor.{name}", problem)
        if self.latency_sigma and not self.latency:
            raise ConfigError.of(
                "tensor.latency_sigma", f"= {self.latency_sigma:g} spreads tensor.latency, which is 0: set both"
            )
        if self.host in _ALL_INTERFACES:
            raise ConfigError.of(
                "tensor.host", f"must be one address, which functions dial, not all of this machine's; got {self.host}"
            )
        return self
