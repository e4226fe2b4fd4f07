"""All backends with their settings and invokers.

Settings read this without loading any backend. A new backend is a module and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

BackendName = Literal["inline", "local", "emulator", "aws", "ray"]


class BackendEntry(NamedTuple):
    """A backend.

    Attributes:
        what: Place of its tensor tasks, for help and docs.
        invoker: `module:function` that creates its invoker from (`TensorConfig`, `RunKeys`, number of sandboxes); None if
            tasks run on threads of this process. Calls of all others are billed by the prices of a cluster.
        settings: Fields of `TensorConfig` that only some backends have.
        on_ray: Whether its sandboxes run on a Ray cluster; `invoker` then also receives the `RayConfig`.
    """

    what: str
    invoker: str | None
    settings: tuple[str, ...]
    on_ray: bool = False


_SANDBOXES = ("workers",)
_PROCESSES = (*_SANDBOXES, "transport", "latency", "latency_sigma", "bandwidth", "cold_start")

BACKENDS: Mapping[BackendName, BackendEntry] = {
    "inline": BackendEntry("on threads of this process", None, ()),
    "local": BackendEntry(
        "in worker processes, which stand in for a cloud's containers",
        "dorylax.serverless.backends.local.pool:of_settings",
        _PROCESSES,
    ),
    "emulator": BackendEntry(
        "in functions that AWS's Runtime Interface Emulator runs on this machine",
        "dorylax.serverless.backends.emulator.pool:of_settings",
        _PROCESSES,
    ),
    "aws": BackendEntry(
        "in a function of AWS Lambda",
        "dorylax.serverless.backends.aws.make:of_settings",
        (*_SANDBOXES, "function", "region", "host", "artefacts"),
    ),
    "ray": BackendEntry(
        "in actors on a Ray cluster", "dorylax.serverless.backends.ray.pool:of_settings", _SANDBOXES, on_ray=True
    ),
}
ELSEWHERE: tuple[BackendName, ...] = tuple(name for name, entry in BACKENDS.items() if entry.invoker is not None)
"""Backends outside this process."""
