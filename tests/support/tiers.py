"""Choose the tests of a run: all cheap ones, one case of every dear test, and a slice of the other cases.

The rule (docs/testing.md explains it):

- A test without a recorded cost, or below `costs.DEAR`, always runs.
- Of every dear test function the cheapest case always runs, if it and its fixtures take at most `CORE` seconds.
  A test with the marker `core` always runs.
- If none of these kills a planted fault (`benchmarks/planted_faults.toml`), the fault's first killer runs too.
- Of the other cases up to `LONGEST` one in `--slice` runs, chosen by a hash of the test id and `--slice-key` (the commit).
- `-m exhaustive` runs all tests, property tests with new seeds. `--shard K/N` runs one of N parts of equal cost.

Tests that the command line names by path are not thinned out.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.costs import DEAR, ROOT, CostRecorder, Costs, fixture_key

CORE = 0.7
"""Processor seconds that one case of every test may take in a default run."""
LONGEST = 20.0
"""Processor seconds above which a case or its fixture is in no slice: only `-m exhaustive` runs it."""
_BY_DEFAULT, _ALL = "not exhaustive", "exhaustive"
_UNRECORDED = 0.03
"""About the mean of the tests without a recorded cost, in processor seconds."""


class Case(NamedTuple):
    """One test with all that decides whether it runs.

    Attributes:
        name: The test id.
        cost: Processor seconds of the test or of its dearest shared fixture, the larger; 0 if none are recorded.
        fixture: The dearest of its shared fixtures that alone takes more than `CORE` seconds, or None.
        marked: The test has the marker `core`.
    """

    name: str
    cost: float
    fixture: str | None
    marked: bool


class Slice(NamedTuple):
    """One part in `parts` of the dear cases, drawn by `key`."""

    parts: int
    key: str

    def has(self, name: str) -> bool:
        """Return whether the slice holds a test or a fixture of this name."""
        digest = hashlib.sha256(f"{self.key} {name}".encode()).digest()
        return int.from_bytes(digest[:8]) % self.parts == 0


def core(cases: Sequence[Case], killers: Iterable[Sequence[str]] = ()) -> set[str]:
    """Choose the tests that every default run has.

    Args:
        cases: All tests.
        killers: For each planted fault the tests that kill it, the cheapest first: test ids, with or without parameters.
    """
    chosen, cheapest = set(), dict[str, Case]()
    for case in cases:
        if case.marked or (case.cost < DEAR and case.fixture is None):
            chosen.add(case.name)
        elif case.fixture is None and case.cost <= CORE:
            function = case.name.partition("[")[0]
            if function not in cheapest or case.cost < cheapest[function].cost:
                cheapest[function] = case
    chosen |= {case.name for case in cheapest.values()}
    names = chosen | {name.partition("[")[0] for name in chosen}
    for first in {tests[0] for tests in killers if names.isdisjoint(tests)}:
        killing = [case for case in cases if first in (case.name, case.name.partition("[")[0])]
        chosen |= {case.name for case in sorted(killing, key=lambda case: case.cost)[:1]}
    return chosen


def chosen(cases: Sequence[Case], drawn: Slice, killers: Iterable[Sequence[str]] = ()) -> set[str]:
    """Choose the tests of a default run."""
    return core(cases, killers) | {
        case.name for case in cases if case.cost <= LONGEST and drawn.has(case.fixture or case.name)
    }


def shards(costs: Mapping[str, float], parts: int) -> list[set[str]]:
    """Split scopes into parts of about equal cost: the dearest first, each to the part with the least so far."""
    split: list[set[str]] = [set() for _ in range(parts)]
    totals = [0.0] * parts
    for scope, cost in sorted(costs.items(), key=lambda entry: (-entry[1], entry[0])):
        least = totals.index(min(totals))
        split[least].add(scope)
        totals[least] += cost
    return split


class Tiers:
    """A plugin that thins out and shards the tests of a session."""

    def __init__(self, config: pytest.Config) -> None:
        # Workers of pytest-xdist are given paths and would take those for the user's, so the controller decides.
        handed: dict[str, Any] | None = getattr(config, "workerinput", {}).get("tiers")
        named = config.args_source == pytest.Config.ArgsSource.ARGS
        self._thinned: bool = not named if handed is None else handed["thinned"]
        self._slice = Slice(
            config.getoption("slice"), handed["key"] if handed else config.getoption("slice_key") or commit()
        )
        self._shard = _shard(config.getoption("shard"))
        self._by_default, self._all = (config.option.markexpr == words for words in (_BY_DEFAULT, _ALL))
        self._costs = Costs.read()

    def pytest_report_header(self) -> str | None:
        """Say which slice runs and how to repeat it."""
        if not (self._thinned and self._by_default):
            return None
        parts, key = self._slice
        return (
            f"tests: all cheap ones, a core, and 1/{parts} of the others; again with --slice {parts} --slice-key {key}"
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the decisions on to a worker of pytest-xdist."""
        node.workerinput["tiers"] = {"thinned": self._thinned, "key": self._slice.key}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark tests as exhaustive, before pytest applies `-m`: the omitted ones, or for an exhaustive run all."""
        runs: set[str] = set()
        if not self._all:
            runs = (
                chosen([self._case(item) for item in items], self._slice, _killers())
                if self._thinned
                else {item.nodeid for item in items}
            )
        for item in items:
            if item.nodeid not in runs:
                item.add_marker(pytest.mark.exhaustive)

    def keep_shard(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the tests of other shards, after pytest has applied `-m`."""
        if self._shard is None:
            return
        scopes = {item: scope_of(item.nodeid, config.rootpath) for item in items}
        costs = dict.fromkeys(scopes.values(), 0.0)
        for item, scope in scopes.items():
            costs[scope] += self._costs.tests.get(item.nodeid, _UNRECORDED)
        kept = shards(costs, self._shard[1])[self._shard[0] - 1]
        config.hook.pytest_deselected(items=[item for item in items if scopes[item] not in kept])
        items[:] = [item for item in items if scopes[item] in kept]

    def _case(self, item: pytest.Item) -> Case:
        fixtures = getattr(item, "_fixtureinfo", None)
        found = fixtures.name2fixturedefs.values() if fixtures else ()
        keys = [key for definitions in found if (key := fixture_key(definitions[-1])) in self._costs.fixtures]
        fixture = max(keys, key=self._costs.fixtures.__getitem__, default=None)
        dear = fixture if fixture is not None and self._costs.fixtures[fixture] > CORE else None
        cost = self._costs.tests.get(item.nodeid, 0.0)
        if dear is not None:
            cost = max(cost, self._costs.fixtures[dear])
        return Case(item.nodeid, cost, dear, item.get_closest_marker("core") is not None)


def add_options(parser: pytest.Parser) -> None:
    """Declare the options of this module."""
    group = parser.getgroup("tiers", "which tests run")
    group.addoption("--slice", type=int, default=20, metavar="N", help="run one in N of the dear cases beyond the core")
    group.addoption("--slice-key", metavar="TEXT", help="draw the slice by this text instead of the commit")
    group.addoption("--shard", metavar="K/N", help="run only part K of N parts of about equal cost")
    group.addoption("--record-costs", type=Path, metavar="FILE", help="record processor seconds of whole files")


def configure(config: pytest.Config) -> None:
    """Register the plugins of this module and of `costs`."""
    config.pluginmanager.register(tiers := Tiers(config))
    config.pluginmanager.register(_Shards(tiers))
    if path := config.getoption("record_costs"):
        config.pluginmanager.register(CostRecorder(path, config))


class _Shards:
    """A second plugin, since one plugin has only one hook of a name: before `-m` is applied, and after."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self._tiers.keep_shard(config, items)


def _killers() -> list[list[str]]:
    """Return the tests that kill each planted fault."""
    faults = tomllib.loads((ROOT / "benchmarks" / "planted_faults.toml").read_text("utf-8"))
    return [fault["killed_by"] for fault in faults.values()]


@functools.cache
def scope_of(nodeid: str, root: Path) -> str:
    """Name the scope of a test: its file, or "ray" for all files that use the one Ray cluster of a process."""
    file = nodeid.split("::", maxsplit=1)[0]
    return "ray" if _uses_ray(root / file) else file


@functools.cache
def _uses_ray(file: Path) -> bool:
    return "ray_cluster" in file.read_text("utf-8")


def commit() -> str:
    """Name the commit of the checkout, or "none" outside a repository."""
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        part, parts = map(int, text.split("/"))
    except ValueError:
        raise pytest.UsageError(f"--shard must be K/N, got {text!r}") from None
    if not 1 <= part <= parts:
        raise pytest.UsageError(f"--shard K/N needs 1 <= K <= N, got {text}")
    return part, parts
