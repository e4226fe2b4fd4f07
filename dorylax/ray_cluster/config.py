"""The Ray cluster of a run and the resources to request: the section `ray` of a configuration. Needs no Ray."""

from __future__ import annotations

from typing import Annotated, ClassVar, final

from annotated_types import Unit
from pydantic import Field, model_validator

from dorylax.settings.errors import ConfigError
from dorylax.settings.section import Count, Positive, Section, Text

LOCAL = "local"
"""Address of a cluster that this process starts and ends."""


@final
class RayConfig(Section):
    """Places of hosts and workers on a Ray cluster. No setting changes the results.

    Raises:
        ConfigError: A value is out of range; names the key.
    """

    section: ClassVar[str] = "ray"

    address: Text | None = Field(
        default=None,
        description="the cluster: HOST:PORT of its head; local: one on this machine that lives as long as the run; null: "
        "the environment variable RAY_ADDRESS, or else the cluster that runs on this machine",
    )
    hosts_per_node: Count | None = Field(
        default=None,
        description="number of servers, graph and parameter servers together, per node; null: as few as Ray can place",
    )
    cpus: Count | None = Field(
        default=None,
        description="CPUs that Ray reserves for each server, which are the cores that it computes on; null: as many as all "
        "servers can have on the nodes that there are",
    )
    memory: Annotated[Count, Unit("bytes")] | None = Field(
        default=None, description="bytes of memory that Ray reserves for each server; null: none"
    )
    resource: Text | None = Field(
        default=None,
        description="a custom resource of Ray, of which each server takes 1, so that only nodes that have it get servers; "
        "null: none",
    )
    worker_cpus: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="CPUs that Ray reserves for each worker of `tensor.backend=ray`, which computes on as many threads, at "
        "least on one",
    )
    timeout: Annotated[Positive, Unit("seconds")] = Field(
        default=60.0, description="seconds after which it is an error if the cluster does not respond or lacks room"
    )

    @model_validator(mode="after")
    def _check(self) -> RayConfig:
        if self.address is None or self.address == LOCAL:
            return self
        host, colon, port = self.address.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit()) or "/" in self.address:
            raise ConfigError.of(
                "ray.address", f"must be HOST:PORT of the cluster's head, or {LOCAL}, got {self.address!r}"
            )
        return self
