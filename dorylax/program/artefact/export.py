"""Exports stages as artefacts (StableHLO for any number of rows, addressed by SHA-256), and saves them in a directory.

- `DIRECTORY/<sha256>.stage`: one artefact, serialised by `jax.export`; `dorylax.program.artefact.stage_file` loads it.
- `DIRECTORY/program.json`: the manifest, which says how each stage calls its artefact.

The manifest is strict JSON; no key may be missing or unknown:

- `format`: "dorylax stages";
- `version`: 1;
- `jax`: the version of JAX that made the artefacts;
- `artefacts`: {sha256: size in bytes};
- `stages`: [{task, sha256, reads, literals, counted, writes}, …], with the number of a task of the program, and the fields
of
  `StageReference`; literals are hexadecimal floats, which are exact ("0x1.8p+1"), "nan" or "inf".

Artefacts never change, so several programs may save stages in one directory; the manifest is that of the last.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import export

from dorylax.durable import make_folder, write_file
from dorylax.errors import InputError
from dorylax.jax_internals import ClosedJaxpr, eval_jaxpr, is_key, symbols_of, without_locations
from dorylax.program.artefact.canonical import ROWS, share
from dorylax.program.artefact.stage_file import SUFFIX, StageReference, read_artefact, sha256_of
from dorylax.program.tasks.split_model import SplitModel

MANIFEST = "program.json"
_FORMAT, _VERSION = "dorylax stages", 1


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
    stages = [
        {"task": task} | dataclasses.asdict(reference) | {"literals": [value.hex() for value in reference.literals]}
        for task, reference in stage_set.stages.items()
    ]
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "jax": jax.__version__,
        "artefacts": {sha256: len(content) for sha256, content in stage_set.artefacts.items()},
        "stages": stages,
    }
    write_file(folder / MANIFEST, (json.dumps(manifest, indent=1, allow_nan=False) + "\n").encode())


def load(directory: str | os.PathLike[str]) -> StageSet:
    """Read the result of `save`.

    Raises:
        InputError: The manifest is invalid or of another version, or an artefact is missing or damaged.
        OSError: The manifest cannot be read.
    """
    path = Path(directory) / MANIFEST
    try:
        sha256s, stages = _Reader(path).manifest(json.loads(path.read_text("utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    artefacts = {}
    for sha256 in sha256s:
        file = path.with_name(sha256 + SUFFIX)
        if not file.is_file():
            raise InputError(f"{file} is missing: {path} lists it; write the program's stages again")
        artefacts[sha256] = read_artefact(file, sha256)
    return StageSet(stages, artefacts)


class _Reader:
    """Reads and checks a manifest."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def manifest(self, found: Any) -> tuple[list[str], dict[int, StageReference]]:
        where = "the manifest"
        self._require(isinstance(found, dict), where, "a JSON object", type(found).__name__)
        # Checked first, so that the error for a later version does not complain about unknown keys.
        for key, wanted in (("format", _FORMAT), ("version", _VERSION)):
            got = found.get(key)
            self._require(type(got) is type(wanted) and got == wanted, key, repr(wanted), repr(got))
        self._keys(found, where, {"format", "version", "jax", "artefacts", "stages"})
        artefacts = found["artefacts"]
        self._require(isinstance(artefacts, dict), "artefacts", "an object", type(artefacts).__name__)
        for name, size in artefacts.items():
            good = len(name) == 64 and set(name) <= set("0123456789abcdef") and _count(size)
            self._require(good, "artefacts", "sizes by 64 hexadecimal digits", f"{name!r}: {size!r}")
        self._require(isinstance(found["stages"], list), "stages", "a list", type(found["stages"]).__name__)
        stages: dict[int, StageReference] = {}
        for k, entry in enumerate(found["stages"]):
            task, reference = self._stage(entry, f"stages[{k}]")
            self._require(task not in stages, f"stages[{k}].task", "a task that has no stage yet", repr(task))
            self._require(reference.sha256 in artefacts, f"stages[{k}].sha256", "one of artefacts", reference.sha256)
            stages[task] = reference
        return list(artefacts), stages

    def _stage(self, entry: Any, where: str) -> tuple[int, StageReference]:
        self._require(isinstance(entry, dict), where, "an object", type(entry).__name__)
        self._keys(entry, where, {"task", *(field.name for field in dataclasses.fields(StageReference))})
        self._require(_count(entry["task"]), f"{where}.task", "an integer ≥ 0", repr(entry["task"]))
        self._require(isinstance(entry["counted"], bool), f"{where}.counted", "true or false", repr(entry["counted"]))
        for key in ("reads", "writes"):
            places = entry[key]
            good = isinstance(places, list) and all(map(_count, places)) and len(set(places)) == len(places)
            self._require(good, f"{where}.{key}", "a list of distinct integers ≥ 0", repr(places))
        writes = entry["writes"]
        self._require(
            sorted(writes) == list(range(len(writes))), f"{where}.writes", "each of 0, 1, … once", repr(writes)
        )
        literals = [_float(text) for text in entry["literals"]] if isinstance(entry["literals"], list) else [None]
        exact = [value for value in literals if value is not None]
        self._require(len(exact) == len(literals), f"{where}.literals", "hexadecimal floats", repr(entry["literals"]))
        return entry["task"], StageReference(
            str(entry["sha256"]), tuple(entry["reads"]), tuple(exact), entry["counted"], tuple(writes)
        )

    def _keys(self, found: Mapping[str, Any], where: str, wanted: set[str]) -> None:
        self._require(set(found) == wanted, where, f"the keys {sorted(wanted)}", str(sorted(found)))

    def _require(self, good: bool, what: str, wanted: str, got: str) -> None:
        if not good:
            raise InputError(f"{self._path}: {what} must be {wanted}, got {got}")


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _float(text: Any) -> float | None:
    try:
        return float.fromhex(text)
    except (TypeError, ValueError, OverflowError):
        return None
