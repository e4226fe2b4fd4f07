"""What reads bytes that came from elsewhere, for fuzzing: each reader, valid inputs to begin with, and what it may raise.

A reader either gives a value or raises an error of ours. Where what it gives can be written again, reading that must give
the same: else something was accepted that is not what was meant.
"""

from __future__ import annotations

import io
import json
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dorylax
from dorylax.config.resolve import RunConfig
from dorylax.errors import DorylaxError
from dorylax.experiments import sweep_file
from dorylax.graph.partition import files as partition_files
from dorylax.program.artefact.stage_file import StageReference
from dorylax.runs import metrics
from dorylax.runs.checkpoint import Checkpoints, CheckpointWarning
from dorylax.runs.digest import sealed
from dorylax.runs.directory import RunDirectory
from dorylax.runs.result import EpochRecord
from dorylax.serverless.data.counters import DataCounters
from dorylax.serverless.data.endpoint import Endpoint
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.refusals import Refusals
from dorylax.serverless.function.invocation import Invocation, read_response, response
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.task import OperandSource, ResultTarget, TaskKey
from dorylax.serverless.wire import frames
from dorylax.serverless.wire.event import Answer, Event

SEPARATOR = b"\n--\n"
"""Between the parts of an input that is more than one file or message."""


class Reader(NamedTuple):
    """Something to be fuzzed.

    Attributes:
        seeds: valid inputs.
        read: reads one; an error that is not `DorylaxError` is a fault.
    """

    seeds: Sequence[bytes]
    read: Callable[[bytes], object]


def reader_of(name: str, folder: Path) -> Reader:
    """The reader of a name.

    Args:
        name: of it.
        folder: an empty one for those that read files; best in memory.
    """
    made: dict[str, Callable[[], Reader]] = {
        "event": lambda: Reader([_EVENT.encode()], lambda content: _same(Event, content)),
        "answer": lambda: Reader([_ANSWER.encode()], lambda content: _same(Answer, content)),
        "message": lambda: Reader(_messages(), _handle),
        "invocation": lambda: Reader(_invocations(), _invoked),
        "configuration": lambda: Reader(_configurations(), _configured),
        "sweep": lambda: Reader([_SWEEP], lambda content: sweep_file.read(_text(content), "sweep.yaml", "sweep")),
        "archive": lambda: Reader(_archives(folder), lambda content: _load_archive(folder, content)),
        "members": lambda: Reader(_members(), lambda content: _load_members(folder, content)),
        "partition": lambda: Reader(_partitions(folder), lambda content: _read_partition(folder, content)),
        "metrics": lambda: Reader([_METRICS], lambda content: _read_metrics(folder, content)),
        "run": lambda: Reader([_RUN], lambda content: _read_run(folder, content)),
        "checkpoint": lambda: Reader(*_checkpoint(folder)),
    }
    return made[name]()


class NotTheSameError(Exception):
    """Something was read that, written again, reads as something else."""


_EVENT = Event(
    run="9f03",
    key=TaskKey(3, 7, 2, 1),
    attempt=1,
    reference=StageReference("ab" * 32, (0, 2), (0.1, float("-inf"), -0.0), True, (1, 0)),
    size=128,
    parts=(128, 0, 17),
    operands=(
        OperandSource("rows", axis=1, factor=4, zero=True),
        OperandSource("weights", leaf=3),
        OperandSource("free"),
    ),
    results=(ResultTarget("rows", axis=1, factor=2), ResultTarget("sums")),
    version=12,
    graph="ipc://endpoint/0",
    parameters="tcp://127.0.0.1:5555",
    artefact="https://bucket.example/stages/abab?signature=0f",
)
_ANSWER = Answer("9f03", TaskKey(3, 7, 2, 1), 1, "out of memory", False, True, 0.1, 2e-5, 0.0, 4096, 0)


def _same(kind: type[Event] | type[Answer], content: bytes) -> None:
    read = kind.decode(content)
    if kind.decode(read.encode()) != read:
        raise NotTheSameError(repr(read))


# Messages: headers get their checksum here, or hardly one would be read beyond it.


def _messages() -> list[bytes]:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensors = [{"dtype": "float32", "shape": [2, 3]}]
    kinds = (
        frames.encode("9f", "get", {"transfer": 1, "name": "rows", "offer": 0, "first": 0, "count": 2}),
        frames.encode(
            "9f",
            "put",
            {"transfer": 2, "name": "sums", "chunk_bytes": 1024, "tensors": tensors},
            [array.view(np.uint8).reshape(-1)],
        ),
        frames.encode("9f", "chunk", {"transfer": 2, "index": 0}, [array.view(np.uint8).reshape(-1)]),
    )
    each = [bytes(header)[4:] + SEPARATOR + b"".join(map(bytes, rest)) for header, *rest in kinds]
    return [*each, SEPARATOR.join([each[1], each[0]])]


def _handle(content: bytes) -> None:
    end = Endpoint("fuzzed", "9f", DataCounters(), Refusals(burst=0), chunk_bytes=1024, credit=2, max_bytes=1 << 20)
    end.offer("rows", [np.ones((64, 8), np.float32)])
    end.expect("sums", lambda _: None)
    parts = content.split(SEPARATOR)
    for k in range(0, len(parts), 2):
        header = zlib.crc32(parts[k]).to_bytes(4, "big") + parts[k]
        replies = end.handle(b"peer", [header, *parts[k + 1 : k + 2]], float(k))
        if sum(reply.nbytes for reply in replies) > 4 * 1024:
            raise NotTheSameError(f"{len(replies)} replies to one message, more than its credit")
    end.probe(1e9)
    if end.unfinished:
        raise NotTheSameError("a put outlived its time")


def _invocations() -> list[bytes]:
    invocation = Invocation(SandboxSettings(RunKeys.make()), _EVENT.encode()).encode()
    return [invocation, json.dumps(response(_ANSWER.encode())).encode()]


def _invoked(content: bytes) -> None:
    try:
        document = json.loads(content)  # as AWS's runtime does
    except (ValueError, RecursionError):
        document = None
    for read in (lambda: Invocation.read(document), lambda: read_response(content)):
        try:
            read()
        except DorylaxError:
            continue


# Settings.


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")  # files that are not UTF-8 are refused before they come here


def _configurations() -> list[bytes]:
    given = [
        {"data.name": "communities", "model.name": "gcn"},
        {"data.name": "cora", "model.name": "gat", "pipeline.mode": "async", "tensor.backend": "local"},
    ]
    return [RunConfig.resolve(each).to_yaml().encode() for each in given]


def _configured(content: bytes) -> None:
    read = RunConfig.from_yaml(_text(content))
    if RunConfig.from_yaml(read.to_yaml()) != read:
        raise NotTheSameError(read.to_yaml())


_SWEEP = b"""\
description: a sweep
base: {data.name: communities, data.size: tiny, model.name: gcn, train.epochs: 3}
grid: {optimizer.learning_rate: [0.01, 0.03]}
zip:
  - {pipeline.mode: [pipe, async], pipeline.staleness: [null, 1]}
seeds: [0, 1]
exclude: [{pipeline.mode: pipe, optimizer.learning_rate: 0.03}]
compare: {baseline: {pipeline.mode: pipe}, margin: 0.01}
"""


# Files.


def _file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _archives(folder: Path) -> list[bytes]:
    rng = np.random.default_rng(0)
    data = dorylax.load("communities", size="tiny")
    small = folder / "seed.npz"
    np.savez(
        small,
        indptr=np.array([0, 2, 3, 3]),
        indices=np.array([1, 2, 0], np.int32),
        features=rng.random((3, 2), np.float32),
        labels=np.array([0, 1, -1]),
        train_mask=np.array([True, False, False]),
        edge_weight=np.ones(3, np.float32),
    )
    compressed = folder / "compressed.npz"
    with np.load(small) as arrays:
        np.savez_compressed(compressed, **dict(arrays))
    data.graph.save_npz(folder / "graph.npz")
    found = [path.read_bytes() for path in (small, compressed, folder / "graph.npz")]
    for path in (small, compressed, folder / "graph.npz"):
        path.unlink()
    return found


def _load_archive(folder: Path, content: bytes) -> None:
    path = _file(folder, "data.npz", content)
    dorylax.load(path)


def _members() -> list[bytes]:
    def npy(array: np.ndarray) -> bytes:
        stream = io.BytesIO()
        np.save(stream, array)
        return stream.getvalue()

    arrays = {
        "indptr": np.array([0, 2, 3, 3]),
        "indices": np.array([1, 2, 0], np.int32),
        "features": np.ones((3, 2), np.float32),
        "labels": np.array([0, 1, -1]),
        "train_mask": np.array([True, False, False]),
    }
    return [SEPARATOR.join(part for name, array in arrays.items() for part in (name.encode(), npy(array)))]


def _load_members(folder: Path, content: bytes) -> None:
    """Arrays whose bytes are changed, in an archive that is right about them."""
    parts = content.split(SEPARATOR)
    path = folder / "members.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in dict(zip(parts[::2], parts[1::2], strict=False)).items():
            archive.writestr(f"{name.decode('latin-1')[:100].replace(chr(0), '') or 'x'}.npy", member)
    dorylax.load(path)


def _partitions(folder: Path) -> list[bytes]:
    fields = {"num_parts": 2, "method": "metis", "balance": "edges", "seed": 0, "graph_digest": "ab" * 32}
    target = folder / "partition"
    partition_files.write(target, np.array([0, 1, 1, 0], np.int32), fields)
    record, parts = ((target / name).read_bytes() for name in ("partition.json", "parts.npy"))
    shutil.rmtree(target)
    # One of version 1 too: it has no digest, so what is changed in it is read.
    before = {key: value for key, value in json.loads(record).items() if key != "sha256"} | {"version": 1}
    return [record + SEPARATOR + parts, json.dumps(before).encode() + SEPARATOR + parts]


def _read_partition(folder: Path, content: bytes) -> None:
    target = folder / "partition"
    target.mkdir(exist_ok=True)
    record, _, parts = content.partition(SEPARATOR)
    _file(target, "partition.json", record)
    _file(target, "parts.npy", parts)
    partition_files.read(target)


_RECORD = EpochRecord(0, 1.5, 0.25, 0.5, None, 0.125, 1e-6)
_LINES = ({"schema": 1, **_RECORD.to_dict()}, sealed({"schema": 2, **_RECORD.to_dict(), "epoch": 1}))
_METRICS = b"".join(json.dumps(line).encode() + b"\n" for line in _LINES)


def _read_metrics(folder: Path, content: bytes) -> None:
    metrics.read(_file(folder, "metrics.jsonl", content))


_RUN = SEPARATOR.join(
    (
        b"schema: 1\ndata:\n  name: cora\n",
        b'{"schema": 1, "dorylax": "0.1.0", "packages": {"jax": "0.10.0"}}',
        b'{"schema": 1, "stopped": "epochs", "best_epoch": 3, "test_accuracy": 0.5}',
    )
)


def _read_run(folder: Path, content: bytes) -> None:
    target = folder / "run"
    target.mkdir(exist_ok=True)
    for name, part in zip(("config.yaml", "environment.json", "summary.json"), content.split(SEPARATOR), strict=False):
        _file(target, name, part)
    run = RunDirectory(target)
    for part in ("config", "environment", "summary", "complete"):
        try:
            getattr(run, part)
        except DorylaxError:
            continue


def _checkpoint(folder: Path) -> tuple[list[bytes], Callable[[bytes], object]]:
    """Two checkpoints, of which one file of the newer is changed: the one before is used, or the same is read."""
    place = folder / "checkpoints"
    kept = Checkpoints(place)
    for epochs in (1, 2):
        kept.save(epochs, {"params": {"w": np.arange(3.0, dtype=np.float32) + epochs}}, {"best": epochs})
    newest = kept.path(2)
    files = sorted(path for path in newest.rglob("*") if path.is_file())
    original = {path: path.read_bytes() for path in files}
    whole = folder / "whole"
    shutil.copytree(place, whole)

    def read(content: bytes) -> None:
        path = files[content[0] % len(files)] if content else files[0]
        path.write_bytes(content[1:])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CheckpointWarning)
                found = Checkpoints(place).restore()
        finally:
            path.write_bytes(original[path])
        assert found is not None
        expected = np.arange(3.0, dtype=np.float32) + found.epochs
        if found.record != {"best": found.epochs} or not np.array_equal(found.arrays["params"]["w"], expected):
            raise NotTheSameError(f"{path.name}: {found}")

    return [bytes([k]) + original[path] for k, path in enumerate(files)], read
