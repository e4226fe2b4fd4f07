"""Imports point downwards, in a circle nowhere, and wait for their function only where that is the purpose."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator
from typing import NamedTuple

from support import modules

FLOORS = (
    *(
        "errors",
        "version",
        "near_matches",
        "processes",
        "signals",
        "machine",
        "aligned",
        "abstract_array",
        "columns",
        "own_folder",
        "figure_style",
        "net",
    ),
    "jax_internals",
    *("settings", "runs", "store", "user_code", "clock", "graph", "terminal", "cost", "ops"),
    *("environment", "program", "inference", "metrics", "layers", "observers", "ray_cluster", "serverless", "pipeline"),
    *("config", "tasks", "memory", "streaming", "trainer", "calibration", "simulation"),
    *("experiments", "cli", "__main__"),
)
"""The rooms of the package: each imports only those before it."""

LAZY = {
    "dorylax.cli": "help and wrong options are answered without JAX",
    "dorylax.experiments": "as above, and `load` without Matplotlib",
    "dorylax.pipeline.config": "settings are checked without JAX",
    "dorylax.pipeline.hosts.process": "as with workers: the end of the driver must be seen while JAX is loaded",
    "dorylax.pipeline.tensor_calls": "only some backends need ZeroMQ or boto3",
    "dorylax.runs.result": "pandas and Matplotlib are loaded for those who ask for a frame or a figure",
    "dorylax.environment": "what reads a run's directory needs no kernels",
    "dorylax.serverless.backends.local.worker": "JAX takes a second, in which the end of the input must be seen",
    "dorylax.serverless.backends.ray.worker": "JAX, whose seconds count as a start and not as a wait for room",
    "dorylax.trainer.pipelined": "one machine needs no pipeline",
}
"""Modules, or all below a package, that import in functions, and why."""


class Import(NamedTuple):
    """A module that another one imports."""

    importer: str
    imported: str
    in_function: bool


@functools.cache
def imports() -> tuple[Import, ...]:
    """All imports of the package's own modules, those for type checkers among them."""
    every = frozenset(modules.names())
    return tuple(one for name in sorted(every) for one in _of(name, every))


def _of(name: str, every: frozenset[str]) -> Iterator[Import]:
    def found(node: ast.AST, *, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{name} imports relatively in line {child.lineno}"
                both = ((f"{child.module}.{alias.name}", child.module or "") for alias in child.names)
                for full, module in both:
                    imported = full if full in every else module
                    if imported in every - {name}:
                        yield Import(name, imported, in_function)
            elif isinstance(child, ast.Import):
                yield from (Import(name, alias.name, in_function) for alias in child.names if alias.name in every)
            inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from found(child, in_function=inside)

    return found(ast.parse(modules.source_of(name)), in_function=False)


def test_no_modules_import_each_other() -> None:
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for one in imports():
        sorter.add(one.importer, one.imported)
    sorter.prepare()  # names the modules of a circle


def test_rooms_import_those_below_them() -> None:
    rooms = {name: name.split(".")[1] for one in imports() for name in one[:2]}
    assert {rooms[one.importer] for one in imports()} <= set(FLOORS)
    upwards = [one for one in imports() if FLOORS.index(rooms[one.importer]) < FLOORS.index(rooms[one.imported])]
    assert upwards == []


def test_only_what_is_to_load_late_is_imported_in_functions() -> None:
    late = {one.importer for one in imports() if one.in_function}
    reasons = {name: [of for of in LAZY if name == of or name.startswith(f"{of}.")] for name in late}
    assert [name for name, found in reasons.items() if not found] == []
    assert {of for found in reasons.values() for of in found} == set(LAZY)
