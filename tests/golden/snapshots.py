"""Snapshots of the public surface: help texts, settings that files may hold, public signatures. One text file each.

`render` returns the current text of a file. A file of settings holds its own inputs, one a line with a line of output below,
with `⏎` for each end of a line. To cover another input, add its line and record again
(`python tests/golden/record.py snapshots`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import inspect
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import click
import yaml
from flax import nnx

from dorylax.cli.app import Commands, cli, main
from dorylax.config import RunConfig
from dorylax.cost import DEFAULT_CLUSTER, find_cluster
from dorylax.errors import DorylaxError
from dorylax.experiments import run
from dorylax.experiments.sweep_file import load
from dorylax.serverless.deploy.settings import Deployment
from dorylax.settings.section import Section
from dorylax.simulation.settings import load as load_scenario

FOLDER = Path(__file__).parent / "snapshots"
SHIPPED = Path(__file__).parents[2] / "experiments" / "configs"
MODULES = ("", "trainer", "tasks", "graph", "ops", "layers", "experiments", "program")
MODULES_WITHOUT_MEMBERS = ("clock", "cost")
DOCUMENTED = (  # names that docs/ imports from other places
    ("experiments.run", "main"),
    ("graph.datasets", "generate"),
    ("graph.partition", "partition"),
    ("graph.partition", "report"),
    ("graph.from_files.text", "Wanted"),
    ("graph.from_files.import_graph", "import_graph"),
    ("graph.from_files.vertices", "VertexFiles"),
    ("simulation.run", "simulate"),
    ("simulation.scenario", "GraphSizes"),
    ("simulation.scenario", "Scenario"),
    ("simulation.search", "what_if"),
    ("tasks.all_pairs", "rank_among_all"),
)
_BREAK = "⏎"
REFUSED = "    refused: "


def render(name: str, text: str, folder: Path) -> str:
    """A snapshot as it is today.

    Args:
        name: Name of the file in `FOLDER`.
        text: Its content, from which inputs are taken.
        folder: Empty folder for inputs that are files.
    """
    if name == "help.txt":
        return "\n".join([*_helps(cli), _help(run.main)]) + "\n"
    if name == "signatures.txt":
        return "\n".join(_signatures()) + "\n"
    inputs = [line for line in text.splitlines() if not line.startswith("    ")]
    return "".join(f"{given}\n{_settings(name.removesuffix('.txt'), given, folder)}\n" for given in inputs)


def _helps(command: click.Command, *words: str) -> Iterator[str]:
    yield _help(main, *words)
    if isinstance(command, Commands):
        for name, inner in command.all_commands().items():
            yield from _helps(inner, *words, name)


def _help(program: Callable[[list[str]], int], *words: str) -> str:
    """Help as it is printed, but with a line for each option, and without `--help` and blank lines."""
    out = io.StringIO()
    with mock.patch.object(click.formatting, "FORCED_WIDTH", 1000), contextlib.redirect_stdout(out):
        assert program([*words, "--help"]) == 0
    # Click keeps the name that a command's help option had in the first context: `--help` or `-h, --help`.
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines() if line.strip() and "--help " not in line)


def _settings(kind: str, given: str, folder: Path) -> str:
    """The normalised settings of a file, as far as they are not the default ones, or its refusal."""
    path = folder / f"{kind}.yaml"
    path.write_text(given.replace(_BREAK, "\n") + "\n", encoding="utf-8")
    try:
        found = READERS[kind](path)
    except DorylaxError as error:
        return REFUSED + str(error).replace(f"{folder}{os.sep}", "").replace("\n", _BREAK)
    flow = yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=math.inf, default_flow_style=True)
    return f"    {flow.strip()}"


def _run(path: Path) -> dict[str, Any]:
    config = RunConfig.load(path)
    usual = RunConfig.resolve({} if config.pipeline is None else {"pipeline.mode": "pipe"}).dotted()
    return {"key": config.key(), **_changes(config.dotted(), usual)}


def _sweep(path: Path) -> dict[str, Any]:
    if (shipped := path.read_text(encoding="utf-8").strip()).startswith("# shipped: "):
        path = SHIPPED / shipped.removeprefix("# shipped: ")
    sweep = load(path)
    runs = [f"{one.key} {one.label}" for one in sweep.runs]
    if len(runs) > 4:
        digest = hashlib.sha256("\n".join(runs).encode()).hexdigest()[:16]
        runs = [*runs[:2], f"and {len(runs) - 2} others, in all {digest}"]
    compared = [part.comparison and _plain(part.comparison) for part in (sweep, *sweep.parts)]
    return {"axes": list(sweep.axes), "runs": runs, "compare": compared}


def _scenario(path: Path) -> dict[str, Any]:
    found = load_scenario(path)
    cluster = _changes(_flat(_plain(found.cluster)), _flat(_plain(find_cluster(found.pipeline.cluster))))
    graph = found.graph and _plain(found.graph)
    return {"name": found.name, "backend": found.backend, "key": found.config.key(), "graph": graph, "cluster": cluster}


def _cluster(path: Path) -> dict[str, Any]:
    return _changes(_flat(_plain(find_cluster(path))), _flat(_plain(DEFAULT_CLUSTER)))


def _deployment(path: Path) -> dict[str, Any]:
    return _changes(Deployment.load(path, {}).to_dict(), Deployment().to_dict())


READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "run": _run,
    "sweep": _sweep,
    "scenario": _scenario,
    "cluster": _cluster,
    "deployment": _deployment,
}
NAMES = ("help.txt", "signatures.txt", *(f"{kind}.txt" for kind in READERS))


def _plain(record: Any) -> dict[str, Any]:
    """A record as YAML can hold it."""
    found: dict[str, Any] = yaml.safe_load(yaml.safe_dump(_lists(dataclasses.asdict(record))))
    return found


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, tuple | list) else value


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return found


def _changes(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Values other than the usual ones, and with a dash those that are missing; all values where none is other."""
    gone = {f"-{key}": usual[key] for key in usual if key not in values}
    found = {key: value for key, value in values.items() if key not in usual or usual[key] != value} | gone
    return {key: list(value) if isinstance(value, tuple) else value for key, value in (found or values).items()}


def _signatures() -> Iterator[str]:
    """Public names, with parameters and defaults, and members of the classes that users hold."""
    homes = [
        importlib.import_module(f"dorylax.{module}".rstrip(".")) for module in (*MODULES, *MODULES_WITHOUT_MEMBERS)
    ]
    listed = [(home, name) for home in homes for name in sorted(home.__all__)]
    listed += [(importlib.import_module(f"dorylax.{home}"), name) for home, name in DOCUMENTED]
    seen: dict[int, str] = {}
    for home, name in listed:
        thing, words = getattr(home, name), f"{home.__name__}.{name}"
        if not callable(thing):
            yield f"{words}: {', '.join(map(str, thing)) if isinstance(thing, Mapping | tuple) else type(thing).__name__}"
        elif id(thing) in seen:
            yield f"{words}: as {seen[id(thing)]}"
        else:
            seen[id(thing)] = words
            yield f"{words}{_parameters(thing)}"
            if isinstance(thing, type) and home.__name__.removeprefix("dorylax").removeprefix(".") in MODULES:
                yield from _members(thing)


def _members(kind: type) -> Iterator[str]:
    scopes = [vars(base) for base in kind.__mro__ if base.__module__.startswith("dorylax") and base is not Section]
    properties = []
    # A layer's parameters are listed already; a model's `conv` is a layer.
    listed = {*getattr(kind, "__dataclass_fields__", ()), "conv"} if issubclass(kind, nnx.Module) else set()
    for name in sorted({key for scope in scopes for key in scope if not key.startswith("_")} - listed):
        member = inspect.getattr_static(kind, name)
        if callable(member) or isinstance(member, classmethod | staticmethod):
            yield f"    .{name}{_parameters(getattr(kind, name))}"
        elif isinstance(member, property | cached_property):
            properties.append(f".{name}")
    if properties:
        yield f"    {' '.join(properties)}"


def _parameters(thing: Any) -> str:
    """Of a function or class, without annotations."""
    try:
        found = list(inspect.signature(thing).parameters.values())
        if [parameter.name for parameter in found] == ["args", "kwargs"]:  # a Flax module's metaclass hides them
            found = list(inspect.signature(thing.__init__).parameters.values())[1:]
    except ValueError:  # an exception's
        return "(…)"
    bare = [one.replace(annotation=inspect.Parameter.empty, default=_Default(one.default)) for one in found]
    return str(inspect.Signature(bare))


class _Default:
    """Shows a default value; of a function, its name."""

    def __new__(cls, value: Any) -> Any:
        return super().__new__(cls) if callable(value) and value is not inspect.Parameter.empty else value

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return getattr(self.value, "__qualname__", self.value.__name__).split(".<locals>")[0].split(".")[-1]
