"""What was measured on a machine (`dorylax calibrate`): the section `measured` of a cluster's file, strictly read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

from dorylax.cost.errors import ClusterError, check_bounds
from dorylax.near_matches import did_you_mean
from dorylax.settings.words import TYPE_WORDS

VERSION = 3
"""Of the section."""

Point = Mapping[str, int | str]


@dataclass(frozen=True)
class Kind:
    """A kind of measurement.

    Attributes:
        unit: of its values.
        at: what a measurement of this kind depends on, by name, with the type of its value.
        summary: what it is, for people.
    """

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
        "task": Kind(
            "seconds",
            {"part": str},
            "of tasks that compute next to nothing: inside, inside tensor tasks, around",
        ),
        "call": Kind("seconds", {"transport": str}, "of a worker process that computes next to nothing"),
        "fetch": Kind("bytes/s", {"transport": str}, "of rows that a worker process fetches"),
        "reference": Kind("seconds", {"tasks": str}, "of tasks of a pipeline on a graph of some size, on average"),
        "latency": Kind("seconds", {"transport": str}, "half of a request and its answer without data"),
        "transfer": Kind("bytes/s", {"transport": str}, "of rows in requests between two processes"),
        "disk": Kind("bytes/s", {"way": str}, "a file written until it is on disk, or read back from there"),
    }
)
"""The kinds by name, in the order of the file."""


@final
@dataclass(frozen=True)
class Measurement:
    """A median of repeats.

    Attributes:
        kind: a name in `KINDS`, which gives the unit.
        at: values of what it depends on, in the order of the kind.
        median: of the repeats, > 0.
        low: their lower quartile, > 0.
        high: their upper quartile, ≥ `low`.
        repeats: how many there were, ≥ 1.

    Raises:
        ClusterError: a value out of range.
    """

    kind: str
    at: tuple[tuple[str, int | str], ...]
    median: float
    low: float
    high: float
    repeats: int

    def __post_init__(self) -> None:
        for key in ("low", "median", "high"):
            check_bounds(self, key, 0.0, above=True)
        check_bounds(self, "median", self.low)
        check_bounds(self, "high", self.median)
        check_bounds(self, "repeats", 1.0)

    @property
    def point(self) -> dict[str, int | str]:
        """`at` by name."""
        return dict(self.at)

    @property
    def spread(self) -> float:
        """The range between the quartiles, as a share of the median."""
        return (self.high - self.low) / self.median

    def to_dict(self) -> dict[str, Any]:
        """As an entry of the section."""
        rest = {key: getattr(self, key) for key in ("median", "low", "high", "repeats")}
        return self.point | rest


@final
@dataclass(frozen=True)
class Measured:
    """All that was measured on a machine at a time.

    Attributes:
        date: when, as YYYY-MM-DD.
        dorylax: version of dorylax that measured.
        processor: of the machine.
        cores: that could be used, as the system counts them: hyper-threads, where there are some.
        threads_per_core: how many of these share a core.
        others: share of the time of these cores that other processes used meanwhile, 0 … 1; None where the system does not
            say.
        results: the measurements, in the order of `KINDS`.
    """

    date: str
    dorylax: str
    processor: str
    cores: int
    threads_per_core: int
    others: float | None
    results: tuple[Measurement, ...]

    def __post_init__(self) -> None:
        check_bounds(self, "cores", 1.0)
        check_bounds(self, "threads_per_core", 1.0)
        if self.others is not None and not 0 <= self.others <= 1:
            raise ClusterError("others", f"must be in 0 … 1, got {self.others}")

    def of(self, kind: str) -> list[Measurement]:
        """All of a kind."""
        return [one for one in self.results if one.kind == kind]

    def at(self, kind: str, **point: int | str) -> Measurement:
        """The measurement at a point.

        Args:
            kind: of it.
            point: values of what it depends on; all of them.

        Raises:
            LookupError: there is none.
        """
        for one in self.of(kind):
            if one.point == point:
                return one
        raise LookupError(f"no measurement {kind} at {point}")

    def to_dict(self) -> dict[str, Any]:
        """The section."""
        found: dict[str, Any] = {"version": VERSION}
        found |= {key: getattr(self, key) for key in (*_FACTS, "others")}
        for kind in KINDS:
            if results := self.of(kind):
                found[kind] = [one.to_dict() for one in results]
        return found


_FACTS: Mapping[str, type] = {"date": str, "dorylax": str, "processor": str, "cores": int, "threads_per_core": int}
_VALUES: Mapping[str, type] = {"median": float, "low": float, "high": float, "repeats": int}


def read_measured(value: Any, key: str) -> Measured:
    """The section of a file.

    Args:
        value: its content.
        key: the dotted key of the section, for errors.

    Raises:
        ClusterError: an unknown or missing key, a wrong value, or a section of another version; names the key.
    """
    entries = _mapping(value, key)
    version = entries.get("version")
    if version != VERSION or type(version) is not int:
        raise ClusterError(
            f"{key}.version", f"must be {VERSION}, got {version!r}: measure again with `dorylax calibrate`"
        )
    known = ["version", *_FACTS, "others", *KINDS]
    for name in entries:
        if name not in known:
            raise ClusterError(f"{key}.{name}", f"is not a key of what is measured: {did_you_mean(name, known)}")
    facts = {name: _typed(entries, name, kind, key) for name, kind in _FACTS.items()}
    others = None if entries.get("others") is None else _typed(entries, "others", float, key, or_null=True)
    results = [one for kind in KINDS for one in _results(kind, entries.get(kind, []), f"{key}.{kind}")]
    try:
        return Measured(**facts, others=others, results=tuple(results))
    except ClusterError as error:
        raise ClusterError(f"{key}.{error.key}", error.problem) from None


def _results(kind: str, value: Any, key: str) -> list[Measurement]:
    if not isinstance(value, list):
        raise ClusterError(key, f"must be a list of measurements, got {value!r}")
    found = []
    for number, entry in enumerate(value):
        where = f"{key}.{number}"
        entries = _mapping(entry, where)
        types = KINDS[kind].at
        known = {**types, **_VALUES}
        for name in entries:
            if name not in known:
                raise ClusterError(f"{where}.{name}", f"is not a key of a {kind}: {did_you_mean(name, known)}")
        at = tuple((name, _typed(entries, name, one, where)) for name, one in types.items())
        values = {name: _typed(entries, name, one, where) for name, one in _VALUES.items()}
        try:
            found.append(Measurement(kind, at, **values))
        except ClusterError as error:
            raise ClusterError(f"{where}.{error.key}", error.problem) from None
    return found


def _mapping(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ClusterError(key, f"must hold keys, as `dorylax calibrate` writes them, got {value!r}")
    return value


def _typed(entries: Mapping[str, Any], name: str, kind: type, key: str, *, or_null: bool = False) -> Any:
    words = TYPE_WORDS[kind] + (" or null" if or_null else "")
    if name not in entries:
        raise ClusterError(f"{key}.{name}", f"is missing: expected {words}")
    value = entries[name]
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ClusterError(f"{key}.{name}", f"must be {words}, got {value!r}")
    return value
