"""Measurements of a machine by `dorylax calibrate`: the section `measured` of a cluster's file, strictly read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, final

from pydantic import Field

from dorylax.cost.fields import entries, inside, part
from dorylax.settings.errors import ConfigError, shown
from dorylax.settings.section import Count, Positive
from dorylax.settings.words import TYPE_WORDS

VERSION = 3
"""Version of the section."""


class Kind(NamedTuple):
    """A kind of measurement: its unit, the names and types of its parameters, and a description for people."""

    unit: str
    at: Mapping[str, type[int] | type[str]]
    summary: str


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "gather": Kind(
            "bytes/s",
            {"width": int, "rows_bytes": int, "threads": int},
            "rows and indices read along edges, by all threads together",
        ),
        "product": Kind(
            "flops/s",
            {"rows": int, "inner": int, "columns": int, "threads": int},
            "a product of matrices in float32, by all threads together",
        ),
        "elementwise": Kind(
            "flops/s",
            {"threads": int},
            "dropout and ReLU of rows, by XLA, by all threads together; as programs count them",
        ),
        "stage": Kind("bytes/s", {"threads": int}, "operands and results of a stage without arithmetic, by XLA"),
        "memory": Kind("bytes/s", {"threads": int}, "read and written by copies beyond all caches"),
        "task": Kind("seconds", {"part": str}, "of tasks that compute next to nothing: inside and around"),
        "latency": Kind("seconds", {"transport": str}, "half of a request and its answer without data"),
        "transfer": Kind("bytes/s", {"transport": str}, "of rows in requests between two processes"),
    }
)
"""The kinds by name, in the order of the file."""
_RETIRED = ("call", "disk", "fetch", "reference")
"""Kinds in files of earlier versions, which are ignored."""


@final
@part
class Measurement:
    """The median and quartiles of repeats; a ConfigError is raised if they are not in order.

    Attributes:
        kind: Name in `KINDS`, which gives the unit.
        at: Parameters, in the order of the kind.
    """

    kind: str
    at: tuple[tuple[str, Any], ...]
    median: Positive
    low: Positive
    high: Positive
    repeats: Count

    def __post_init__(self) -> None:
        for (name, value), wanted in zip(self.at, KINDS[self.kind].at.values(), strict=True):
            if type(value) is not wanted:
                raise ConfigError.of(name, f"must be {TYPE_WORDS[wanted]}, got {shown(value)}")
        for low, high in (("low", "median"), ("median", "high")):
            least, found = getattr(self, low), getattr(self, high)
            if found < least:
                raise ConfigError.of(high, f"must be ≥ {least:g}, got {found}")

    @property
    def point(self) -> dict[str, int | str]:
        """The parameters as a dictionary."""
        return dict(self.at)

    @property
    def spread(self) -> float:
        """The range between the quartiles, as a share of the median."""
        return (self.high - self.low) / self.median

    def to_dict(self) -> dict[str, Any]:
        """An entry of the section."""
        return self.point | {key: getattr(self, key) for key in _VALUES}


_VALUES = ("median", "low", "high", "repeats")


@final
@part
class Measured:
    """All measurements of one calibration.

    Attributes:
        date: Date, as YYYY-MM-DD.
        dorylax: Version of dorylax.
        processor: Name of the machine's processor.
        cores: Number of usable cores, hyper-threads included.
        threads_per_core: Number of these that share a core.
        others: Share of their time that other processes used (0 to 1); None if the system does not report it.
        results: The measurements, in the order of `KINDS`.

    Raises:
        ConfigError: A value is out of range.
    """

    date: str
    dorylax: str
    processor: str
    cores: Count
    threads_per_core: Count
    others: Annotated[float, Field(ge=0, le=1)] | None
    results: tuple[Measurement, ...]

    def of(self, kind: str) -> list[Measurement]:
        """All measurements of a kind."""
        return [one for one in self.results if one.kind == kind]

    def at(self, kind: str, **point: int | str) -> Measurement:
        """The measurement of a kind with these parameters; a LookupError is raised if there is none."""
        for one in self.of(kind):
            if one.point == point:
                return one
        raise LookupError(f"no measurement {kind} at {point}")

    def to_dict(self) -> dict[str, Any]:
        """The section."""
        lists = {kind: [one.to_dict() for one in results] for kind in KINDS if (results := self.of(kind))}
        return {"version": VERSION, **{key: getattr(self, key) for key in _FACTS}, **lists}


_FACTS = ("date", "dorylax", "processor", "cores", "threads_per_core", "others")


def read_measured(value: Any, key: str) -> Measured:
    """Read the section of a file.

    Raises:
        ConfigError: A key is unknown or missing, a value is wrong, or the section has another version; names the key
            within `key`.
    """
    version = value.get("version") if isinstance(value, dict) else VERSION
    if version != VERSION or type(version) is not int:
        raise ConfigError.of(
            f"{key}.version", f"must be {VERSION}, got {version!r}: measure again with `dorylax calibrate`"
        )
    found = {"others": None} | entries(value, key, ("version", *_FACTS, *KINDS, *_RETIRED), "what is measured")
    results: list[Measurement] = []
    for kind, spec in KINDS.items():
        given = found.get(kind, [])
        if not isinstance(given, list):
            raise ConfigError.of(f"{key}.{kind}", f"must be a list of measurements, got {given!r}")
        for number, one in enumerate(given):
            where = f"{key}.{kind}.{number}"
            entry = entries(one, where, (*spec.at, *_VALUES), f"a {kind}")
            with inside(where):
                if lacking := [name for name in spec.at if name not in entry]:
                    raise ConfigError.of(lacking[0], f"is missing: expected {TYPE_WORDS[spec.at[lacking[0]]]}")
                at = tuple((name, entry.pop(name)) for name in spec.at)
                results.append(Measurement(kind, at, **entry))
    with inside(key):
        return Measured(**{name: found[name] for name in _FACTS if name in found}, results=tuple(results))
