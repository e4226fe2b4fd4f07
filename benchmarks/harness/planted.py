"""Planted faults (`planted_faults.toml`): the list, and the record of the tests that fail with each."""

from __future__ import annotations

import json
import resource
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIST = Path(__file__).resolve().parent.parent / "planted_faults.toml"


class PlantedFaultError(ValueError):
    """An entry of the list that cannot be planted in this checkout."""


class Fault(NamedTuple):
    """One planted fault.

    Attributes:
        name: Identifier.
        room: Part of the product that the fault is in.
        behaviour: What correct code does, and what the fault does instead.
        file: Changed file, relative to the checkout.
        before: Text that the fault replaces; must occur once in the file.
        after: Replacement.
        killed_by: Test node ids, each of which fails with the fault; without parameters, any case may fail.
    """

    name: str
    room: str
    behaviour: str
    file: str
    before: str
    after: str
    killed_by: tuple[str, ...]

    def applied(self, source: str) -> str:
        """Returns the file's text with the fault.

        Raises:
            PlantedFaultError: The replaced text does not occur exactly once.
        """
        if (count := source.count(self.before)) != 1:
            raise PlantedFaultError(
                f"{self.name}: its `before` occurs {count} times in {self.file}, expected once: plant it anew ({LIST.name})"
            )
        return source.replace(self.before, self.after)


def planted_faults(chosen: Sequence[str] = (), path: Path = LIST) -> list[Fault]:
    """Reads the list.

    Args:
        chosen: Names or rooms to keep; empty: all.
        path: File to read.

    Raises:
        PlantedFaultError: `chosen` has a name that is neither a fault nor a room.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8"))
    faults = [Fault(name, **{**fields, "killed_by": tuple(fields["killed_by"])}) for name, fields in entries.items()]
    if unknown := set(chosen) - {word for fault in faults for word in (fault.name, fault.room)}:
        raise PlantedFaultError(f"neither a planted fault nor a room: {', '.join(sorted(unknown))}")
    return [fault for fault in faults if not chosen or fault.name in chosen or fault.room in chosen]


class Outcome(NamedTuple):
    """Result of one test.

    Attributes:
        test: Node id.
        failed: Whether its setup, call, or teardown failed.
        seconds: CPU time of the test and the processes it has waited for.
    """

    test: str
    failed: bool
    seconds: float


class Recording:
    """Pytest plugin that appends the outcome of each test to a file, so that a killed session loses only one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Times a test and writes its outcome."""
        self._failed, begin = False, _cpu_seconds()
        result: Any = yield
        outcome = Outcome(item.nodeid, self._failed, round(_cpu_seconds() - begin, 3))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a failure."""
        self._failed |= report.failed


def recorded(path: Path) -> list[Outcome]:
    """Reads the outcomes that a `Recording` wrote; empty if no test ended."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Outcome(*json.loads(line)) for line in lines]


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
