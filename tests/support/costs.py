"""Processor seconds of tests: measures them, and reads and writes `tests/costs.json`.

A separate module because `tiers` must be able to choose tests from recorded costs without measuring anything.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import resource
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "costs.json"
DEAR = 0.3
"""Processor seconds from which a test, or a fixture of several tests, is recorded on its own."""


@dataclasses.dataclass
class Costs:
    """Recorded processor seconds, child processes included.

    Attributes:
        files: Total of a file's tests that take less than `DEAR` each, by file.
        tests: Seconds of each dear test without its shared fixtures, by test id.
        fixtures: Seconds of each dear fixture that several tests share, by `fixture_key`.
    """

    files: dict[str, float] = dataclasses.field(default_factory=dict)
    tests: dict[str, float] = dataclasses.field(default_factory=dict)
    fixtures: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = FILE) -> Costs:
        """Read a file of costs; without the file, no test has a recorded cost."""
        if not path.exists():
            return cls()
        stored = json.loads(path.read_text("utf-8"))
        tests = {f"{file}::{name}": cost for file, of in stored["tests"].items() for name, cost in of.items()}
        return cls(stored["files"], tests, stored["fixtures"])

    def write(self, path: Path) -> None:
        """Write the file: one line for each file of tests, so that changes are easy to review."""
        by_file: dict[str, dict[str, float]] = collections.defaultdict(dict)
        for test, cost in sorted(self.tests.items()):
            file, name = test.split("::", 1)
            by_file[file][name] = cost
        sections = {"files": self.files, "tests": by_file, "fixtures": self.fixtures}
        text = ",\n".join(f'"{name}": {{\n{_lines(section)}\n}}' for name, section in sections.items())
        path.write_text(f"{{\n{text}\n}}\n", "utf-8")

    def update(self, other: Costs, ran: Collection[str], known: Collection[str]) -> None:
        """Take over the costs of the tests that ran, and forget tests and files that are gone.

        Args:
            other: Costs of the tests that ran.
            ran: Ids of these tests.
            known: Ids of all tests in the files that were collected, whether they ran or not.
        """
        collected = {test.split("::", maxsplit=1)[0] for test in known}
        for test in list(self.tests):
            file = test.split("::", maxsplit=1)[0]
            if test in ran or (file in collected and test not in known) or not (ROOT / file).exists():
                del self.tests[test]
        self.tests.update(other.tests)
        self.files = {file: cost for file, cost in (self.files | other.files).items() if (ROOT / file).exists()}
        fixtures = (self.fixtures | other.fixtures).items()
        self.fixtures = {key: cost for key, cost in fixtures if (ROOT / key.split("::", maxsplit=1)[0]).exists()}


def _lines(section: dict[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(section[key], sort_keys=True)}" for key in sorted(section))


def fixture_key(definition: pytest.FixtureDef[Any]) -> str:
    """Name a fixture by the file or folder that defines it."""
    return f"{definition.baseid}::{definition.argname}"


class CostRecorder:
    """A plugin that measures each test of this process.

    Run whole files with it. The controller of pytest-xdist merges the costs of its workers and writes the file.
    """

    def __init__(self, path: Path, config: pytest.Config) -> None:
        self._path = path
        self._config = config
        self._found = Costs()
        self._ran: list[str] = []
        self._known: list[str] = []
        self._fixtures = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note all tests, before any is deselected."""
        self._known = [item.nodeid for item in items]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Charge a fixture that several tests share to itself."""
        if fixturedef.scope == "function":
            return (yield)
        begin, inner = cpu_seconds(), self._fixtures
        try:
            return (yield)
        finally:
            cost = cpu_seconds() - begin - (self._fixtures - inner)
            self._fixtures += cost
            if cost >= DEAR:
                self._found.fixtures[fixture_key(fixturedef)] = round(cost, 1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Charge a test with everything but shared fixtures."""
        begin, self._fixtures = cpu_seconds(), 0.0
        try:
            return (yield)
        finally:
            # Below zero if a process that this one did not start has ended meanwhile.
            cost = max(0.0, cpu_seconds() - begin - self._fixtures)
            self._ran.append(item.nodeid)
            file = item.nodeid.split("::", maxsplit=1)[0]
            self._found.files.setdefault(file, 0.0)
            if cost >= DEAR:
                self._found.tests[item.nodeid] = round(cost, 1)
            else:
                self._found.files[file] = round(self._found.files[file] + cost, 3)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Hand the costs to the controller, or write them."""
        costs = {"found": dataclasses.asdict(self._found), "ran": self._ran, "known": self._known}
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["costs"] = costs
        elif self._ran:
            self._merge(costs)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Merge the costs of a worker of pytest-xdist."""
        if costs := getattr(node, "workeroutput", {}).get("costs"):
            self._merge(costs)

    def _merge(self, costs: Mapping[str, Any]) -> None:
        stored = Costs.read(self._path)
        stored.update(Costs(**costs["found"]), set(costs["ran"]), set(costs["known"]))
        stored.write(self._path)


def cpu_seconds() -> float:
    """Processor seconds of this process and of its descendants, on Linux also of those that are still running."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return seconds + sum(_ticks(pid) for pid in _descendants(os.getpid())) / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> Iterable[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


def _ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return sum(map(int, text.rpartition(")")[2].split()[11:15]))
