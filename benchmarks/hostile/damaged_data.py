"""Damaged and made-up files of data: read, refused in one line before memory is taken, or silently taken for true?

A trial damages one file and loads it as users do. It survives where the load refuses in one line, or gives the same values,
because the damage hit nothing that is read; other values are lost.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harness import zip_bombs
from harness.damage import KINDS, damaged, flip
from harness.reading_process import Outcome, ReadingProcess
from harness.zip_bombs import BZIP2, DEFLATED, LZMA, Member, array, deflated_zeros, header
from hostile.base import Line

_GIB = 2**30
_MOST_GROWN = _GIB // 2  # bytes that a refusal may take
_GRAIN = 3.2  # seconds after which an unchanged file's verdict is kept
_MAPPED = {"num_vertices": 20_000, "num_edges": 1_200_000, "num_features": 64, "num_classes": 4}
_SMALL = {"num_vertices": 300, "num_edges": 2_400, "num_features": 16, "num_classes": 4}
_ORDERED = {"num_vertices": 3_000, "num_edges": 12_000, "num_features": 2, "num_classes": 4}
_PLANETOID = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")


class Case(NamedTuple):
    """A file to damage.

    Attributes:
        name: for the table.
        path: of the file.
        load: what reads it, in a process of its own, and gives a digest of the values.
        source: what `load` is given.
        rounds: trials of each kind of damage.
    """

    name: str
    path: Path
    load: Callable[[Path], str]
    source: Path
    rounds: int


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """Tries the faults."""
    os.environ["DORYLAX_CACHE"] = str(folder / "cache")
    os.environ.pop("DORYLAX_DATA", None)
    draw = random.Random(19)
    with ReadingProcess() as reader:
        for case in _cases(folder):
            yield from _damaged(reader, case, draw, tiny=tiny)
        yield _remembered(reader, folder, 1 if tiny else 40, draw)
        yield from _made_up(reader, folder)
    yield _trained(folder, 1 if tiny else 6, draw)


def _cases(folder: Path) -> Iterator[Case]:
    import dorylax
    from dorylax.graph.partition import partition

    large, small = (dorylax.load("communities", **size) for size in (_MAPPED, _SMALL))
    mapped, older = folder / "mapped.npz", folder / "older.npz"
    dataclasses.replace(large, vertex_inputs={"pos": large.features[:, :2]}).save_npz(mapped)
    yield Case("mapped npz", mapped, load_archive, mapped, 60)
    _without_checksums(mapped, older)
    yield Case("mapped npz without checksums", older, load_archive, older, 20)

    plain, numpys, deflated = (folder / f"{name}.npz" for name in ("small", "numpy", "deflated"))
    small.save_npz(plain)
    yield Case("small npz", plain, load_archive, plain, 120)
    with np.load(plain) as found:
        arrays = {name: found[name] for name in found.files if name != "checksums.json"}
    np.savez(numpys, **arrays)
    yield Case("npz of NumPy", numpys, load_archive, numpys, 120)
    np.savez_compressed(deflated, **arrays)
    yield Case("deflated npz", deflated, load_archive, deflated, 120)

    parts = folder / "parts"
    partition(small.graph, 3).save(parts)
    for file in ("parts.npy", "partition.json"):
        yield Case(f"partition, {file}", parts / file, load_partition, parts, 120)

    ordered = folder / "ordered.npz"
    dorylax.load("communities", **_ORDERED).save_npz(ordered)
    load_order(ordered)
    (order,) = (folder / "cache" / "orders-1").iterdir()
    yield Case("kept order", order, load_order, ordered, 20)

    _write_planetoid(folder / "published")
    load_downloaded(folder)
    for part in ("allx", "graph", "test.index", "graph.sha256"):
        yield Case(
            f"download, {part}", folder / "cache" / "planetoid" / f"ind.cora.{part}", load_downloaded, folder, 40
        )
    load_kept(plain)
    yield Case("kept data set", folder / "cache" / "parsed-1" / "reddit.npz", load_kept, plain, 120)


def _damaged(reader: ReadingProcess, case: Case, draw: random.Random, *, tiny: bool) -> Iterator[Line]:
    expected = reader.read(case.load, case.source)
    if expected.kind != "value":
        raise RuntimeError(f"{case.name}: {expected.text}")
    whole = case.path.read_bytes()
    for kind, damage in KINDS.items():
        if tiny and damage is not flip:
            continue
        outcomes = []
        for _ in range(1 if tiny else case.rounds):
            with damaged(case.path, whole, damage, draw):
                outcomes.append(reader.read(case.load, case.source))
        yield _line(f"{case.name}: {kind}", outcomes, expected.text)


def _remembered(reader: ReadingProcess, folder: Path, rounds: int, draw: random.Random) -> Line:
    """Files that were checked, and change afterwards under their old times."""
    whole = (folder / "mapped.npz").read_bytes()
    with zipfile.ZipFile(folder / "mapped.npz") as archive:
        info = archive.getinfo("features.npy")
    paths = [folder / f"remembered-{number}.npz" for number in range(rounds)]
    for path in paths:
        shutil.copyfile(folder / "mapped.npz", path)
    time.sleep(_GRAIN)
    outcomes = []
    for path in paths:
        expected = reader.read(load_archive, path)

        def damage(content: bytearray, draw: random.Random) -> None:
            content[draw.randrange(info.header_offset + 4096, info.header_offset + info.file_size)] ^= 1

        if not any((folder / "cache" / "verified-1").iterdir()):
            raise RuntimeError("no verdict was kept")
        with damaged(path, whole, damage, draw):
            outcomes.append(reader.read(load_archive, path))
        path.unlink()
    return _line("mapped npz, checked before: a flipped bit under the old times", outcomes, expected.text)


def _made_up(reader: ReadingProcess, folder: Path) -> Iterator[Line]:
    """Files that no program writes by accident: nothing but a refusal counts."""
    bombs, path = [], folder / "bomb.npz"
    for members in _bombs():
        zip_bombs.write(path, members)
        bombs.append(reader.read(load_archive, path))
    path.write_bytes(header((10**15,)))
    bombs.append(reader.read(load_archive, path))
    yield _refusals("npz: bombs, headers that lie, members inside each other", bombs)

    parts, outcomes = folder / "parts", []
    record = json.loads((parts / "partition.json").read_text())
    for content in (
        json.dumps(record | {"num_vertices": 10**15}),
        "[" * 10**6,
        json.dumps(record | {"num_parts": 10**30}),
    ):
        (parts / "partition.json").write_text(content)
        outcomes.append(reader.read(load_partition, parts))
    for version in (1, 2):
        old = {key: value for key, value in record.items() if key != "sha256" or version == 2}
        (parts / "partition.json").write_text(json.dumps(old | {"version": version}))
        for shape in ((10**15,), (10**9,), (300, 10**9)):
            (parts / "parts.npy").write_bytes(header(shape, "<i4"))
            outcomes.append(reader.read(load_partition, parts))
    yield _refusals("partition: arrays and lists without end", outcomes)

    outcomes, files = [], folder / "cache" / "planetoid"
    for part, content in _pickles():
        shutil.rmtree(files)
        files.mkdir()
        (files / f"ind.cora.{part}").write_bytes(content)
        outcomes.append(reader.read(load_downloaded, folder))
    yield _refusals("download: pickles and lists that inflate", outcomes)

    outcomes = []
    for content in (
        "[" * 10**5,
        "{a: " * 10**5,
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        "data: {name: " + "[" * 3000,
    ):
        (folder / "bomb.yaml").write_text(content)
        outcomes.append(reader.read(load_configuration, folder / "bomb.yaml"))
    yield _refusals("configuration: lists without end, and of themselves", outcomes)


def _bombs() -> Iterator[list[Member]]:
    graph = [
        array("indptr", np.array([0, 1, 2])),
        array("indices", np.array([1, 0], np.int32)),
        array("labels", [0, 1]),
    ]
    good = array("features", np.ones((2, 4), np.float32))
    for size in (2 * _GIB, 64 * _GIB):  # honest ones
        start = header((2, size // 8))
        yield [*graph, Member("features.npy", deflated_zeros(start, size), len(start) + size, DEFLATED)]
    start = header((2, _GIB // 2))
    zeros = deflated_zeros(start, 4 * _GIB)
    yield [*graph, Member("features.npy", zeros, len(good.content), DEFLATED)]  # more than is declared
    yield [*graph, Member("features.npy", zeros, len(start) + 2 * _GIB, DEFLATED)]
    yield [*graph, Member("features.npy", zeros, 10**15, DEFLATED)]
    for shape in ((10**15,), (2, 10**15), (10**9, 10**9, 10**9), (-2, -4), (2,) * 70, (2, 3), (0, 4)):
        content = header(shape) + bytes(32)
        yield [*graph, Member("features.npy", content, len(content))]
        yield [*graph, Member("features.npy", content, len(header(shape)) + 4 * 10**15)]
    for text in ("-" * 8000 + "1", "(" * 8000, "{'descr': " * 500, "{'descr': '<f4', 'shape': (2, 4)}", "\\d"):
        content = header((), text=text)
        yield [*graph, Member("features.npy", content, len(content))]
    content = header((2, 4), "V2000000000")
    yield [*graph, Member("features.npy", content, len(content))]
    for method in (BZIP2, LZMA, 99):
        yield [*graph, good._replace(method=method)]
    yield [*graph, good, good]
    yield [*graph, good._replace(place=0)]
    yield [*graph, good._replace(place=0, listed_as="indptr.npy")]
    yield [*graph, good._replace(listed_as="feature.npy")]
    inner = Member("features.npy", b"", 0)
    yield [*graph, good._replace(name="a.npy", content=good.content + bytes(64)), inner._replace(place=100)]
    shape = array("features_shape", np.array([2, 2**31 - 2]))
    rows = [array("features_indptr", [0, 1, 2]), array("features_indices", [0, 1]), array("features_data", [1.0, 1.0])]
    yield [*graph, *rows, shape]
    yield [*graph, good, Member("checksums.json", b"[" * 10**6, 10**6)]


def _pickles() -> Iterator[tuple[str, bytes]]:
    """In place of a part of a download."""
    text = b"c_codecs\nencode\n(X\x04\x00\x00\x00aaaaX\x06\x00\x00\x00latin1tR"
    chain = text
    for _ in range(40):
        chain = b"c_codecs\nencode\n(" + chain + b"X\x03\x00\x00\x00hextR"
    yield "allx", b"\x80\x02" + chain + b"."
    yield "allx", b"\x80\x02cnumpy\nndarray\n(J\x00\x00\x00\x40J\x00\x00\x00\x40\x86tR."
    yield "allx", b"\x80\x04\x8e" + (2**40).to_bytes(8, "little")
    shared = list(range(10_000))
    yield "graph", pickle.dumps(dict.fromkeys(range(200_000), shared), 2)
    yield "test.index", b"999999999999"
    yield "test.index", b"9" * 40


def _refusals(fault: str, outcomes: list[Outcome]) -> Line:
    return _line(fault, outcomes, expected="")


def _line(fault: str, outcomes: list[Outcome], expected: str) -> Line:
    crashed = [one for one in outcomes if one.kind == "crashed" or one.grown > _MOST_GROWN]
    lost = [one for one in outcomes if one.kind == "value" and one.text != expected and one not in crashed]
    for one in (*lost, *crashed)[:3]:
        print(f"    {fault}: {one.kind}, {one.grown >> 20} MiB more: {one.text[-2000:]}", file=sys.stderr)
    return Line(fault, len(outcomes), len(outcomes) - len(lost) - len(crashed), len(lost), len(crashed))


def _trained(folder: Path, rounds: int, draw: random.Random) -> Line:
    """`dorylax train --data` on a mapped archive, a bit of whose features or edges is flipped."""
    path = folder / "mapped.npz"
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        infos = [archive.getinfo(f"{name}.npy") for name in ("features", "indices")]
    tally = {"survived": 0, "lost": 0, "crashed": 0}
    for number in range(rounds):
        info = infos[number % 2]

        def damage(content: bytearray, draw: random.Random, info: zipfile.ZipInfo = info) -> None:
            content[draw.randrange(info.header_offset + 4096, info.header_offset + info.file_size)] ^= 1

        with damaged(path, whole, damage, draw):
            command = ["train", "--data", str(path), "--epochs", "1", "--no-save"]
            found = subprocess.run(
                [sys.executable, "-m", "dorylax", *command], capture_output=True, text=True, timeout=300, check=False
            )
        refused = found.returncode == 2 and len(found.stderr.splitlines()) == 1 and "is damaged" in found.stderr
        outcome = "survived" if refused else "lost" if found.returncode == 0 else "crashed"
        if not refused:
            print(f"    dorylax train: {found.returncode}: {found.stderr[-2000:]}", file=sys.stderr)
        tally[outcome] += 1
    return Line("dorylax train --data: a flipped bit of a mapped array", rounds, **tally)


def _digest(*values: Any) -> str:
    found = hashlib.sha256()
    for value in values:
        shown = np.asarray(value)
        found.update(f"{shown.dtype} {shown.shape} ".encode())
        found.update(np.ascontiguousarray(shown).tobytes())
    return found.hexdigest()


def _digest_of(data: Any) -> str:
    rows = data.graph.incoming
    masks = (data.train_mask, data.val_mask, data.test_mask)
    further = [part for one in (*data.vertex_inputs.items(), *data.edge_inputs.items()) for part in one]
    numbers = (data.name, -1 if data.num_classes is None else data.num_classes, data.multilabel, data.graph.self_loops)
    return _digest(rows.offsets, rows.neighbours, data.features, data.labels, *masks, *numbers, *further)


def load_archive(path: Path) -> str:
    """`dorylax.load` of an archive."""
    import dorylax

    return _digest_of(dorylax.load(str(path)))


def load_partition(folder: Path) -> str:
    """`Partition.load`."""
    from dorylax.graph.partition import Partition

    found = Partition.load(folder)
    return _digest(found.parts, found.num_parts, found.method, found.balance, found.seed, found.graph_digest)


def load_order(path: Path) -> str:
    """The order that is kept of an archive's graph; of graphs of any size."""
    from dorylax.graph import Graph
    from dorylax.graph.partition import order_cache

    order_cache.WORTH_KEEPING = 0
    return _digest(order_cache.cached_locality_order(Graph.from_npz(path)))


def load_downloaded(folder: Path) -> str:
    """A data set whose files are there as if they had been downloaded; those that are missing are put there first."""
    import dorylax

    files = folder / "cache" / "planetoid"
    files.mkdir(parents=True, exist_ok=True)
    for file in (folder / "published").iterdir():
        if not (files / file.name).exists():
            shutil.copyfile(file, files / file.name)
    return _digest_of(dorylax.load("cora"))


def load_kept(path: Path) -> str:
    """A data set of which a copy is kept, because reading what is published takes long: here that is an archive."""
    import dorylax
    from dorylax.graph.datasets import registry
    from dorylax.graph.datasets.base import Contents

    def read(_: object) -> Contents:
        data = dorylax.Dataset.from_npz(path)
        masks = (data.train_mask, data.val_mask, data.test_mask)
        return Contents(data.graph, data.features, data.labels, data.num_classes or 0, masks)

    registry.PUBLISHED["reddit"] = dataclasses.replace(registry.PUBLISHED["reddit"], sources=(), read=read)
    return _digest_of(dorylax.load("reddit"))


def load_configuration(path: Path) -> str:
    """A configuration file."""
    from dorylax.config import RunConfig

    return RunConfig.load(path).to_yaml()


def _without_checksums(path: Path, to: Path) -> None:
    """A copy as dorylax wrote it before it kept checksums."""
    shutil.copyfile(path, to)
    with zipfile.ZipFile(to, "a") as archive:
        last = archive.infolist().pop()
        del archive.NameToInfo[last.filename]
        archive.start_dir, archive._didModify = last.header_offset, True  # type: ignore[attr-defined]


def _write_planetoid(folder: Path) -> None:
    """Files of the format that cora comes in, of 60 vertices."""
    from scipy.sparse import csr_matrix

    draw = np.random.default_rng(0)
    features = csr_matrix((draw.random((60, 40)) < 0.1).astype(np.float32))
    labels = np.eye(4, dtype=np.int32)[draw.integers(0, 4, 60)]
    graph = {vertex: draw.integers(0, 60, 5).tolist() for vertex in range(60)}
    parts: dict[str, Any] = {"x": features[:20], "y": labels[:20], "allx": features[:40], "ally": labels[:40]}
    parts |= {"tx": features[40:], "ty": labels[40:], "graph": graph}
    folder.mkdir()
    for part in _PLANETOID:
        content = "\n".join(map(str, range(40, 60))).encode() if part == "test.index" else pickle.dumps(parts[part], 2)
        (folder / f"ind.cora.{part}").write_bytes(content)
