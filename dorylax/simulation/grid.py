"""Grids of a what-if: the values of several axes, in all combinations."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final, get_args

from dorylax.cost import INSTANCES
from dorylax.near_matches import did_you_mean
from dorylax.pipeline.config import ASYNC_DEFAULTS, Mode
from dorylax.simulation.scenario import BACKENDS, GPU_SERVER, Backend, Scenario, ScenarioError

Value = int | str

_COUNTS: Mapping[str, int] = {"servers": 1, "functions": 1, "intervals": 1, "parameter_servers": 1, "staleness": 0}
"""Axes of whole numbers, with their lower bounds."""
_NAMES: Mapping[str, Sequence[str]] = {
    "backend": BACKENDS,
    "mode": get_args(Mode),
    "graph_server": [name for name, instance in INSTANCES.items() if instance.gpu is None],
}
"""Axes of words."""
AXES = (*_COUNTS, *_NAMES)
_EVERY, _MOST = 6, 1000
"""Largest span of a range whose numbers are all tried, and most numbers of an axis."""
_RANGE = re.compile(r"(\d+)(?:\s*\.\.\s*(\d+)(?:\s*/\s*(\d+))?)?", re.ASCII)
"""A number, `low..high` or `low..high/count`."""
_HINTS = {"functions": " (servers alone: backend=cpu)", "graph_server": " (servers with a GPU: backend=gpu)"}


class Point(NamedTuple):
    """One configuration.

    Attributes:
        backend, graph_server: Backend (`Scenario`), and type of the graph servers.
        servers, parameter_servers: Numbers of servers.
        functions: Most concurrent functions of each server; 0 on other backends than "functions".
        intervals: Intervals of each server.
        mode, staleness: Mode of the pipeline, and staleness; None unless the mode is async.
    """

    backend: Backend
    graph_server: str
    servers: int
    functions: int
    intervals: int
    parameter_servers: int
    mode: str
    staleness: int | None

    @property
    def work(self) -> int:
        """Amount of simulation, relative to others: most events are messages, of each interval to each other server."""
        return self.servers**2 * self.intervals

    def label(self, axes: Iterable[str]) -> str:
        """Describe the point by these axes: `8 servers, 40 functions, S = 1`."""
        return ", ".join(
            self._words(axis) for axis in axes if getattr(self, axis) not in (None, 0) or axis == "staleness"
        )

    def _words(self, axis: str) -> str:
        value = getattr(self, axis)
        if axis == "staleness":
            return "no staleness" if value is None else f"S = {value}"
        if axis in _COUNTS:
            name = axis.replace("_", " ")
            return f"{value} {name.removesuffix('s') if value == 1 else name}"
        return f"on {value}" if axis == "backend" else str(value)

    def of(self, base: Scenario) -> Scenario:
        """Return the scenario of the point; `base`, on functions, gives all else.

        Raises:
            ConfigError: The settings contradict each other.
        """
        names = ("servers", "intervals", "parameter_servers", "mode", "staleness")
        changed = {name: value for name in names if (value := getattr(self, name)) != getattr(base.pipeline, name)}
        pipeline = base.pipeline.model_copy(update=changed)
        cluster = base.cluster
        if self.backend == "functions":
            cluster = dataclasses.replace(cluster, functions=self.functions)
        if self.backend != "gpu" and self.graph_server != cluster.graph_server.name:
            cluster = dataclasses.replace(cluster, graph_server=INSTANCES[self.graph_server])
        config = base.config.model_copy(update={"pipeline": pipeline})
        return dataclasses.replace(base, config=config, cluster=cluster).on(self.backend)


@final
@dataclasses.dataclass(frozen=True)
class Grid:
    """Values by axis (of `AXES`), which are all combined.

    Raises:
        ScenarioError: An axis is unknown, or its values are missing or impossible.
    """

    axes: Mapping[str, tuple[Value, ...]]

    def __post_init__(self) -> None:
        if not self.axes:
            raise ScenarioError(f"a what-if needs an axis such as servers=4..16: {did_you_mean('', AXES)}")
        for axis, values in self.axes.items():
            _known(axis)
            if not values:
                raise ScenarioError(f"what-if {axis} is empty: give a value")
            for value in values:
                _check(axis, value)
        object.__setattr__(self, "axes", {axis: tuple(dict.fromkeys(values)) for axis, values in self.axes.items()})

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Read `servers=4..64,functions=10|20,backend=functions|cpu`.

        All numbers of a range `a..b` are tried if they are at most six, otherwise a, its doubles, and b. `a..b/n` are n
        numbers from a to b, each larger than the one before by the same factor, as nearly as whole numbers can be.

        Raises:
            ScenarioError: The text is no grid; names the wrong part.
        """
        axes = dict[str, tuple[Value, ...]]()
        for part in text.split(","):
            name, equals, values = (word.strip() for word in part.partition("="))
            if not equals:
                raise ScenarioError(
                    f"what-if {part.strip()!r} must be such as servers=4..16, functions=10|40 or backend=cpu|gpu"
                )
            _known(name)
            if name in axes:
                raise ScenarioError(f"what-if {name} is given twice: put its values together, {name}=a|b")
            words = [word.strip() for word in values.split("|")]
            if not all(words):
                raise ScenarioError(f"what-if {name}={values} lacks a value: give one, or several such as a|b")
            axes[name] = tuple(value for word in words for value in _values(name, word))
        return cls(axes)

    def points(self, base: Scenario, most: int) -> list[Point]:
        """Return all configurations without duplicates; the last axis changes fastest.

        Axes are left out where they mean nothing: functions on other backends, staleness in other modes than async, the
        type of servers on GPUs. If functions are tried and intervals are not, a server has an interval per function: it
        could not keep more of them busy.

        Args:
            base: The scenario that gives all other settings, on functions.
            most: Largest number of points.

        Raises:
            ScenarioError: There are more points, or an axis means nothing at all of them.
        """
        if "functions" in self.axes and (slots := base.pipeline.tensor.slots) is not None:
            raise ScenarioError(f"what-if functions says nothing where tensor.slots is {slots}: leave one of them out")
        points = dict[Point, None]()
        for values in itertools.product(*self.axes.values()):
            points[_point(dict(zip(self.axes, values, strict=True)), base)] = None
            if len(points) > most:
                sizes = " × ".join(f"{len(values)} {axis}" for axis, values in self.axes.items())
                raise ScenarioError(
                    f"what-if {sizes} are more than {most} points: give fewer values, or allow more points"
                )
        for axis, (needs, means) in _MEANING.items():
            if axis in self.axes and not any(means(point) for point in points):
                raise ScenarioError(f"what-if {axis} means nothing without {needs}: add it, or leave {axis} out")
        return list(points)

    def __str__(self) -> str:
        return ",".join(f"{axis}={'|'.join(map(str, values))}" for axis, values in self.axes.items())


_MEANING: Mapping[str, tuple[str, Callable[[Point], bool]]] = {
    "functions": ("backend=functions", lambda point: point.backend == "functions"),
    "graph_server": ("backend=functions or cpu", lambda point: point.backend != "gpu"),
    "staleness": ("mode=async", lambda point: point.mode == "async"),
}


def _point(choice: Mapping[str, Any], base: Scenario) -> Point:
    pipeline, cluster = base.pipeline, base.cluster
    backend: Backend = choice.get("backend", base.backend)
    functions = choice.get("functions", cluster.functions) if backend == "functions" else 0
    intervals = functions if "functions" in choice and functions else pipeline.intervals
    usual = ASYNC_DEFAULTS["staleness"] if pipeline.staleness is None else pipeline.staleness
    mode = choice.get("mode", pipeline.mode)
    return Point(
        backend=backend,
        graph_server=GPU_SERVER.name if backend == "gpu" else choice.get("graph_server", cluster.graph_server.name),
        servers=choice.get("servers", pipeline.servers),
        functions=functions,
        intervals=choice.get("intervals", intervals),
        parameter_servers=choice.get("parameter_servers", pipeline.parameter_servers),
        mode=mode,
        staleness=choice.get("staleness", usual) if mode == "async" else None,
    )


def _known(axis: str) -> None:
    if axis not in AXES:
        raise ScenarioError(f"what-if {axis!r} is no axis: {did_you_mean(axis, AXES)}")


def _check(axis: str, value: Value) -> None:
    hint = _HINTS.get(axis, "")
    if axis in _NAMES:
        if value not in _NAMES[axis]:
            raise ScenarioError(f"what-if {axis}={value} is not known: {did_you_mean(value, _NAMES[axis])}{hint}")
    elif type(value) is not int or value < _COUNTS[axis]:
        raise ScenarioError(f"what-if {axis} must be whole numbers ≥ {_COUNTS[axis]}, got {value!r}{hint}")


def _values(axis: str, word: str) -> Sequence[Value]:
    """The values that a word stands for: one value, or those of a range."""
    if axis in _NAMES:
        return [word]
    match, least = _RANGE.fullmatch(word), _COUNTS[axis]
    if match is None:
        hint = _HINTS.get(axis, "")
        raise ScenarioError(
            f"what-if {axis}={word} must be whole numbers ≥ {least} such as 8, 4..16 or 10..200/5{hint}"
        )
    low, high = int(match[1]), int(match[2] or match[1])
    if low > high:
        raise ScenarioError(f"what-if {axis}={word} is an empty range: {low} is more than {high}")
    return _ladder(low, high) if match[3] is None else _steps(axis, word, low, high, int(match[3]))


def _ladder(low: int, high: int) -> list[int]:
    if high - low < _EVERY:
        return list(range(low, high + 1))
    found = [low, *[1] * (low == 0)]
    while 2 * found[-1] < high:
        found.append(2 * found[-1])
    return [*found, high]


def _steps(axis: str, word: str, low: int, high: int, number: int) -> list[int]:
    most = min(_MOST, high - low + 1)
    if not 2 <= number <= most:
        raise ScenarioError(f"what-if {axis}={word} must be 2 to {most} numbers, got {number}")
    # By their factor small numbers would be equal: each is 1 more than the one before at least.
    found = [low]
    for left in range(number - 1, 0, -1):
        ideal = round(found[-1] * (high / found[-1]) ** (1 / left)) if found[-1] else 1
        found.append(max(ideal, found[-1] + 1))
    return found
