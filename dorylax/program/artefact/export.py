"""Exports stages as artefacts (StableHLO for any number of rows, addressed by SHA-256), and saves them in a directory.

- `DIRECTORY/<sha256>.stage`: one artefact, serialised by `jax.export`; `dorylax.program.artefact.stage_file` loads it.
- `DIRECTORY/program.json`: the manifest, which says how each stage calls its artefact.

The manifest is strict JSON; no key may be missing or unknown:

- `format`: "dorylax stages";
- `version`: 1;
- `jax`: the version of JAX that made the artefacts;
- `artefacts`: {sha256: size in bytes};
- `stages`: [{task, sha256, reads, literals, counted, writes}, …], with the number of a task of the program, and the fields
  of `StageReference`; literals are hexadecimal floats, which are exact ("0x1.8p+1"), "nan" or "inf".

Artefacts never change, so several programs may save stages in one directory; the manifest is that of the last.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self, final

import jax
import jax.numpy as jnp
from jax import export
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from dorylax.errors import InputError
from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, is_key, symbols_of, without_locations
from dorylax.program.artefact.canonical import ROWS, share
from dorylax.program.artefact.stage_file import SUFFIX, StageReference, read_artefact, sha256_of
from dorylax.program.tasks.split_model import SplitModel
from dorylax.settings.errors import shown
from dorylax.store.durable import make_folder, write_file

MANIFEST = "program.json"


@final
@dataclasses.dataclass(frozen=True)
class StageSet:
    """The stages of a program.

    Attributes:
        stages: References from stages to artefacts, by number of the task.
        artefacts: Contents of the artefacts, by SHA-256.
    """

    stages: dict[int, StageReference]
    artefacts: dict[str, bytes]


def export_stages(program: SplitModel) -> StageSet:
    """Export the stages of a program, each distinct one once.

    Equal stages give the same bytes in every process and at any position in a model (with the same JAX).

    Raises:
        ValueError: A stage reads typed random keys, which cannot be sent to a worker.
    """
    indices = [k for k, task in enumerate(program.tasks) if task.kind == "stage"]
    for k in indices:
        keys = [var for var in program.interfaces[k].reads if is_key(var.aval)]
        if keys:
            raise ValueError(
                f"task {k} reads a typed random key ({keys[0].aval}): keys stay in the driver, stages read uint32 words "
                "(jax.random.key_data)"
            )
    stages: dict[int, StageReference] = {}
    artefacts: dict[str, bytes] = {}
    for group in share([program.function_of(k) for k in indices]):
        counted = _must_count(group.function)
        content = _serialised(group.function, counted)
        sha256 = sha256_of(content)
        artefacts[sha256] = content
        for member in group.members:
            stages[indices[member.stage]] = StageReference(
                sha256, member.inputs, member.literals, counted, member.outputs
            )
    return StageSet(dict(sorted(stages.items())), artefacts)


def _must_count(function: ClosedJaxpr) -> bool:
    """Whether there are rows, but no input that gives their number, because the rows are all alike."""
    jaxpr = function.jaxpr
    return not any(map(_has_rows, jaxpr.invars)) and any(map(_has_rows, jaxpr.outvars))


def _has_rows(atom: Any) -> bool:
    return any(symbols_of(size) for size in atom.aval.shape)


def _serialised(function: ClosedJaxpr, counted: bool) -> bytes:
    jaxpr = function.jaxpr
    specs = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in jaxpr.invars]
    if counted:
        symbolic = next(size for atom in jaxpr.outvars for size in atom.aval.shape if symbols_of(size))
        specs.append(jax.ShapeDtypeStruct(export.symbolic_shape(ROWS, scope=symbolic.scope), jnp.bool_))

    def stage(*values: Any) -> tuple[Any, ...]:
        return tuple(eval_jaxpr(jaxpr, function.consts, *values[: len(jaxpr.invars)]))

    exported = export.export(jax.jit(stage), platforms=["cpu"])(*specs)
    return bytes(without_locations(exported).serialize())


def save(stage_set: StageSet, directory: str | os.PathLike[str]) -> None:
    """Write artefacts and manifest; existing artefacts stay.

    Each file is written atomically, the manifest last.

    Raises:
        OSError: The file system refuses.
    """
    folder = Path(directory)
    make_folder(folder)
    for sha256, content in stage_set.artefacts.items():
        path = folder / (sha256 + SUFFIX)
        if not path.is_file() or path.read_bytes() != content:
            write_file(path, content)
    manifest = _Manifest(
        format="dorylax stages",
        version=1,
        jax=jax.__version__,
        artefacts={sha256: len(content) for sha256, content in stage_set.artefacts.items()},
        stages=[
            _Entry(task=task, **(vars(reference) | {"literals": tuple(value.hex() for value in reference.literals)}))
            for task, reference in stage_set.stages.items()
        ],
    )
    write_file(folder / MANIFEST, (manifest.model_dump_json(indent=1) + "\n").encode())


def load(directory: str | os.PathLike[str]) -> StageSet:
    """Read the result of `save`.

    Raises:
        InputError: The manifest is invalid or of another version, or an artefact is missing or damaged.
        OSError: The manifest cannot be read.
    """
    path = Path(directory) / MANIFEST
    try:
        manifest = _Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the manifest"
        raise InputError(
            f"{path}: {place}: {first['msg'].removeprefix('Value error, ')}, got {shown(first['input'])}"
        ) from error
    artefacts = {}
    for sha256 in manifest.artefacts:
        file = path.with_name(sha256 + SUFFIX)
        if not file.is_file():
            raise InputError(f"{file} is missing: {path} lists it; write the program's stages again")
        artefacts[sha256] = read_artefact(file, sha256)
    stages = {}
    for entry in manifest.stages:
        literals = tuple(map(float.fromhex, entry.literals))
        stages[entry.task] = StageReference(entry.sha256, entry.reads, literals, entry.counted, entry.writes)
    return StageSet(stages, artefacts)


def _distinct(places: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(places)) < len(places):
        raise ValueError("must be distinct integers")
    return places


def _permutation(places: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(places) != list(range(len(places))):
        raise ValueError("must be each of 0, 1, … once")
    return places


def _hexadecimal(text: str) -> str:
    try:
        float.fromhex(text)
    except (ValueError, OverflowError):
        raise ValueError("must be a hexadecimal float") from None
    return text


_Count = Annotated[int, Field(ge=0)]


class _Entry(BaseModel):
    """A stage of the manifest."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task: _Count
    sha256: str
    reads: Annotated[tuple[_Count, ...], AfterValidator(_distinct)]
    literals: tuple[Annotated[str, AfterValidator(_hexadecimal)], ...]
    counted: bool
    writes: Annotated[tuple[_Count, ...], AfterValidator(_permutation)]


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["dorylax stages"]
    version: Annotated[int, Field(ge=1, le=1)]
    jax: str
    artefacts: dict[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], _Count]
    stages: list[_Entry]

    @model_validator(mode="after")
    def _check(self) -> Self:
        tasks = [entry.task for entry in self.stages]
        for entry in self.stages:
            if tasks.count(entry.task) > 1:
                raise ValueError(f"stages: task {entry.task} has two stages, expected one")
            if entry.sha256 not in self.artefacts:
                raise ValueError(f"stages: sha256 of task {entry.task} must be one of artefacts, not {entry.sha256}")
        return self
