"""Where tensor tasks run and how they are watched: one frozen set of numbers and names, checked whole.

The same keys are those of the section `tensor` of a configuration (`dorylax.config`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from typing import Any, Literal, final

from dorylax.errors import DorylaxError

LONGEST_CALL = 900.0
"""Seconds that AWS Lambda lets a function run at most (AWS's documentation, July 2026)."""

BackendName = Literal["inline", "local", "emulator", "aws"]
TransportName = Literal["ipc", "tcp"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "backend": typing.get_args(BackendName),
    "transport": typing.get_args(TransportName),
}
_COUNTS = {"workers": 1, "slots": 1, "attempts": 1, "relaunches": 0}
_SECONDS = ("latency", "cold_start")
_FLAGS = ("autotune", "streaming")
_TEXTS = ("function", "region", "host", "artefacts")
_IN_PROCESSES: tuple[BackendName, ...] = ("local", "emulator")
ELSEWHERE: tuple[BackendName, ...] = (*_IN_PROCESSES, "aws")
"""Backends whose calls are billed by the prices of a cluster."""

_ALL_INTERFACES = ("*", "0.0.0.0", "::", "[::]")
_IN_AWS: tuple[BackendName, ...] = ("aws",)
# What only some backends have.
_ONLY: dict[str, tuple[BackendName, ...]] = {
    "workers": ELSEWHERE,
    "transport": _IN_PROCESSES,
    "latency": _IN_PROCESSES,
    "bandwidth": _IN_PROCESSES,
    "cold_start": _IN_PROCESSES,
    "streaming": ELSEWHERE,
    "function": _IN_AWS,
    "region": _IN_AWS,
    "host": _IN_AWS,
    "artefacts": _IN_AWS,
}


class TensorConfigError(DorylaxError, ValueError):
    """Tensor tasks that cannot be run like this; its text is one line for the user.

    Attributes:
        key: the dotted key that is wrong, `tensor.workers`.
    """

    def __init__(self, key: str, problem: str) -> None:
        self.key = f"tensor.{key}"
        super().__init__(f"{self.key} {problem}")


@final
@dataclasses.dataclass(frozen=True)
class TensorConfig:
    """Where tensor tasks run, and what is done when they are late or lost (Dorylus, OSDI '21, section 6).

    Attributes:
        backend: "inline": on threads of this process; "local": in worker processes on this machine, which stand for the
            containers of a cloud; "emulator": in functions that AWS's Runtime Interface Emulator runs on this machine;
            "aws": in a function of AWS Lambda.
        workers: processes of "local", sandboxes of "emulator" and "aws", ≥ 1; None: half of the machine's cores, for graph
            tasks need the others; 100 of "aws".
        slots: calls of each graph server at a time, ≥ 1; None: inline its share of the cores, or the cluster's functions on
            the virtual clock; elsewhere its share of the workers.
        autotune: let the number of calls at a time follow the queue of graph tasks.
        attempts: calls of one task that may fail before the run does, ≥ 1.
        deadline: seconds after which a call counts as failed, > 0; None: never inline, 900 (AWS Lambda's limit) elsewhere.
        relaunch: a task is called again beside a call that has taken this many times the mean of its stage, > 1. The first
            answer counts.
        relaunches: so often at most, ≥ 0. Inline on the real clock it never happens: a second call would be as slow.
        transport: how workers fetch data: "ipc", files of the operating system; "tcp", loopback with CURVE keys made for the
            run.
        latency: seconds that each request of a worker takes besides its bytes, ≥ 0.
        bandwidth: bytes per second of each worker, > 0; None: as fast as it goes.
        cold_start: seconds that a worker takes longer to start, ≥ 0.
        streaming: workers compute on the first half of the rows while the second arrives.
        function: of "aws": its name, name:alias or ARN.
        region: of "aws": where the function is; None: as boto3 finds it.
        host: of "aws": the address of this machine that functions dial; to be given.
        artefacts: of "aws": `s3://bucket/prefix`, where stages lie; None: graph servers offer them.

    Raises:
        TensorConfigError: a value out of range, or one that the backend makes meaningless; names the key.
    """

    backend: BackendName = "inline"
    workers: int | None = None
    slots: int | None = None
    autotune: bool = False
    attempts: int = 10
    deadline: float | None = None
    relaunch: float = 5.0
    relaunches: int = 1
    transport: TransportName = "ipc"
    latency: float = 0.0
    bandwidth: float | None = None
    cold_start: float = 0.0
    streaming: bool = False
    function: str = "dorylax"
    region: str | None = None
    host: str | None = None
    artefacts: str | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            _check_choice(name, getattr(self, name), choices)
        for name, least in _COUNTS.items():
            _check_count(name, getattr(self, name), least, optional=_DEFAULTS[name] is None)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise TensorConfigError(name, f"must be true or false, got {getattr(self, name)!r}")
        for name in _TEXTS:
            _check_text(name, getattr(self, name), optional=_DEFAULTS[name] is None)
        for name in _SECONDS:
            _check_number(name, getattr(self, name), 0.0, above=False, unit="seconds")
        _check_number("relaunch", self.relaunch, 1.0, above=True, unit="")
        for name, unit in (("deadline", "seconds"), ("bandwidth", "bytes per second")):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), 0.0, above=True, unit=unit)
        for name, backends in _ONLY.items():
            if self.backend not in backends and getattr(self, name) != _DEFAULTS[name]:
                raise TensorConfigError(
                    name,
                    f"= {getattr(self, name)} needs tensor.backend={' or '.join(backends)}; got {self.backend}: change one "
                    "of them",
                )
        if self.backend == "aws" and self.host is None:
            raise TensorConfigError(
                "host",
                "must be the address by which functions find this machine, its private one in their VPC; got none",
            )
        if self.host in _ALL_INTERFACES:
            raise TensorConfigError(
                "host", f"must be one address, which functions dial, not all of this machine's; got {self.host}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The fields, in order, as YAML may carry them; `TensorConfig(**…)` of it is equal to this."""
        return dataclasses.asdict(self)


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(TensorConfig)}


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value in choices:
        return
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise TensorConfigError(name, f"must be one of {', '.join(choices)}, got {value!r}{hint}")


def _check_text(name: str, value: Any, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or not value:
        raise TensorConfigError(name, f"must be a text, got {value!r}")


def _check_count(name: str, value: Any, least: int, *, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TensorConfigError(name, f"must be a whole number ≥ {least}, got {value!r}")
    if value < least:
        raise TensorConfigError(name, f"must be ≥ {least}, got {value}")


def _check_number(name: str, value: Any, least: float, *, above: bool, unit: str) -> None:
    sign = ">" if above else "≥"
    wanted = f"a finite number {sign} {least:g}" + (f" ({unit})" if unit else "")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TensorConfigError(name, f"must be {wanted}, got {value!r}")
    if not (value > least if above else value >= least):
        raise TensorConfigError(name, f"must be {wanted}, got {value}")
