"""Files are damaged (bits, ends, blocks) and read: refused in one line, read as they were, or silently taken for true?

A trial damages one file of a data set, a partition, a cache, a run or a checkpoint, and reads it as users do. It survives
where the reader refuses in one line, or gives the same values; other values are lost. Files of a run are also damaged or
removed before `dorylax train --resume`, which refuses in one line or comes to the same bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import resource
import shutil
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hostile.base import Line, Outcome, Tally
from hostile.commands import DATA, DORYLAX, run_result
from hostile.worker import DiedError, Worker

_BLOCK = 4096
_MOST_GROWN = 2**29  # bytes that a refusal may take
_LARGE = {"num_vertices": 20_000, "num_edges": 1_200_000, "num_features": 64, "num_classes": 4}
_SMALL = {"num_vertices": 300, "num_edges": 2_400, "num_features": 16, "num_classes": 4}
_RUN = ("train", *DATA, "--epochs", "4", "--set", "train.checkpoint_every=2", "--set", "pipeline.servers=2")
_RUN += ("--set", "pipeline.clock=virtual")


# Kinds of damage.


def flip(content: bytearray, draw: random.Random) -> None:
    """One bit, anywhere."""
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def flip_at_the_ends(content: bytearray, draw: random.Random) -> None:
    """One bit of the first or the last KiB: headers and lists are there."""
    near = min(1024, len(content))
    content[draw.choice((0, len(content) - near)) + draw.randrange(near)] ^= 1 << draw.randrange(8)


def cut(content: bytearray, draw: random.Random) -> None:
    """The end, of any length."""
    del content[draw.randrange(len(content)) :]


def zero(content: bytearray, draw: random.Random) -> None:
    """A block of 4 KiB, or the rest of one."""
    first = draw.randrange(0, len(content), _BLOCK)
    content[first : first + _BLOCK] = bytes(len(content[first : first + _BLOCK]))


def scramble(content: bytearray, draw: random.Random) -> None:
    """A block, as another file's would be."""
    first = draw.randrange(0, len(content), _BLOCK)
    content[first : first + _BLOCK] = draw.randbytes(len(content[first : first + _BLOCK]))


KINDS = {
    **{"a flipped bit": flip, "a flipped bit of headers": flip_at_the_ends, "cut off": cut},
    **{"a block of zeros": zero, "a block of another file": scramble},
}


# Readers, which give a digest of the values that they have read.


def _digest(*values: Any) -> str:
    found = hashlib.sha256()
    for value in values:
        shown = np.asarray(value)
        found.update(f"{shown.dtype} {shown.shape} ".encode() + np.ascontiguousarray(shown).tobytes())
    return found.hexdigest()


def load_archive(path: Path) -> str:
    """`dorylax.load` of an archive."""
    import dorylax

    data = dorylax.load(str(path))
    rows, masks = data.graph.incoming, (data.train_mask, data.val_mask, data.test_mask)
    further = [part for one in (*data.vertex_inputs.items(), *data.edge_inputs.items()) for part in one]
    return _digest(rows.offsets, rows.neighbours, data.features, data.labels, *masks, data.num_classes, *further)


def load_partition(folder: Path) -> str:
    """`Partition.load`."""
    from dorylax.graph.partition import Partition

    found = Partition.load(folder)
    return _digest(found.parts, found.num_parts, found.method, found.balance, found.seed, found.graph_digest)


def load_order(path: Path) -> str:
    """The order that is kept of an archive's graph; of graphs of any size."""
    from dorylax.graph import Graph
    from dorylax.graph.partition import locality

    locality.WORTH_KEEPING = 0
    return _digest(locality.cached_locality_order(Graph.from_folder(path)))


def load_run(folder: Path) -> str:
    """Files of a run. A damaged name of the digest is one field more, which no reader knows."""
    from dorylax.experiments.folder import read_study
    from dorylax.store import metrics
    from dorylax.store.run_directory import RunDirectory

    run = RunDirectory.open(folder / "seed-0")
    fields = [*(run.environment or {}).items(), *(run.summary or {}).items()]
    known = [(key, value) for key, value in fields if not _nearly(key, "digest")]
    return _digest(repr(run.config), repr(known), repr(metrics.of_run(run)), repr(read_study(folder).sweep))


def load_checkpoint(folder: Path) -> str:
    """The newest whole checkpoint; of an older one its epochs alone, if a warning says so."""
    from dorylax.errors import RunWarning
    from dorylax.store.checkpoint import Checkpoints

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = Checkpoints(folder).restore()
    if found is None:
        return "none"
    if found.epochs < 4:
        return "older" if [one.category for one in seen] == [RunWarning] else "older, and silent"
    groups = sorted((group, name) for group, named in found.arrays.items() for name in named)
    return _digest(repr(found.record), *groups, *(found.arrays[group][name] for group, name in groups))


def _nearly(text: str, other: str) -> bool:
    return len(text) == len(other) and sum(a != b for a, b in zip(text, other, strict=True)) < 2


def attempt(load: Callable[[Path], str], path: Path) -> tuple[str, str, int]:
    """Value, refusal in one line, or crash; its text; and bytes by which the peak of this process has grown."""
    from dorylax.errors import DorylaxError

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = "value", load(path)
    except (DorylaxError, OSError) as error:
        text = str(error)
        found = ("refused" if text.strip() and "\n" not in text else "crashed"), text
    except Exception:
        found = "crashed", traceback.format_exc()
    return *found, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


# Trials.


class Case(NamedTuple):
    """A file to damage, its reader, the reader's argument, and trials of each kind of damage."""

    name: str
    path: Path
    load: Callable[[Path], str]
    source: Path
    rounds: int


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    os.environ["DORYLAX_CACHE"] = str(folder / "cache")
    os.environ.pop("DORYLAX_DATA", None)
    draw = random.Random(19)
    with Worker(folder / "worker") as worker:
        whole = folder / "whole"
        trained = worker.command((DORYLAX, *_RUN, "--out", whole), folder)
        if trained.code != 0:
            raise RuntimeError(f"the run that is to be damaged has failed: {trained.errors}")
        cases = [*_cases_of_data(folder), *_cases_of_runs(whole)]
        for case in cases[4::5] if tiny else cases:
            expected = worker.call(attempt, case.load, case.source)
            if expected[0] != "value":
                raise RuntimeError(f"{case.name}: {expected[1]}")
            for kind, damage in list(KINDS.items())[: 1 if tiny else None]:
                tally = Tally()
                for _ in range(3 if tiny else case.rounds):
                    tally.add(*_trial(worker, case, damage, draw, expected[1]))
                yield tally.line(f"{case.name}: {kind}")
        yield _resumed(worker, whole, tiny=tiny)


def _trial(
    worker: Worker, case: Case, damage: Callable[..., None], draw: random.Random, expected: str
) -> tuple[Outcome, str, str]:
    """Damages a file under its old times, reads it, and puts it right."""
    whole, times = case.path.read_bytes(), case.path.stat()
    content = bytearray(whole)
    damage(content, draw)
    case.path.write_bytes(content)
    os.utime(case.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    try:
        kind, text, grown = worker.call(attempt, case.load, case.source)
    except DiedError as error:
        kind, text, grown = "crashed", str(error), 0
    finally:
        case.path.write_bytes(whole)
    if kind == "crashed" or grown > _MOST_GROWN:
        return "crashed", case.name, f"{grown >> 20} MiB more: {text[-2000:]}"
    if kind == "value" and text not in (expected, "older"):
        return "lost", case.name, "it was read with other values"
    return "survived", case.name, ""


def _cases_of_data(folder: Path) -> Iterator[Case]:
    import dorylax
    from dorylax.graph.partition import partition
    from dorylax.graph.stored import open_arrays

    large, small = (dorylax.load("communities", **size) for size in (_LARGE, _SMALL))
    mapped, plain, deflated, parts = (folder / name for name in ("mapped", "small", "deflated.npz", "parts"))
    dataclasses.replace(large, vertex_inputs={"pos": large.features[:, :2]}).save(mapped)
    for file in ("features.npy", "manifest.json"):
        yield Case(f"mapped data, {file}", mapped / file, load_archive, mapped, 60)
    small.save(plain)
    yield Case("small data, labels.npy", plain / "labels.npy", load_archive, plain, 120)
    with open_arrays(plain) as found:
        np.savez_compressed(deflated, **{name: found.fetch(name) for name in found.names})
    yield Case("deflated npz of NumPy", deflated, load_archive, deflated, 120)
    partition(small.graph, 3).save(parts)
    for file in ("parts.npy", "manifest.json"):
        yield Case(f"partition, {file}", parts / file, load_partition, parts, 120)
    ordered = folder / "ordered"
    dorylax.load("communities", num_vertices=3_000, num_edges=12_000, num_features=2, num_classes=4).save(ordered)
    load_order(ordered)
    (order,) = (folder / "cache" / "orders-1").iterdir()
    yield Case("kept order", order, load_order, ordered, 20)


def _cases_of_runs(whole: Path) -> Iterator[Case]:
    for name in ("config.yaml", "environment.json", "summary.json", "metrics.jsonl", "../sweep.json"):
        yield Case(f"run, {name}", whole / "seed-0" / name, load_run, whole, 100)
    newest = max((whole / "seed-0" / "checkpoints").glob("epoch-*"))
    for path in sorted(path for path in newest.rglob("*") if path.is_file() and path.stat().st_size):
        yield Case(f"checkpoint, {path.name}", path, load_checkpoint, newest.parent, 20)


def _resumed(worker: Worker, whole: Path, *, tiny: bool) -> Line:
    """Damages or removes each file, and resumes: refused in one line, or the same bits."""

    def flip_middle(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 1] = b"\0"
        path.write_bytes(content)

    expected, tally = run_result(whole / "seed-0"), Tally()
    # But locks, and traces, which are of the process that trained.
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    names = [name for name in names if not name.endswith((".lock", "trace.json"))]
    for name in ["seed-0/summary.json"] if tiny else names:
        for harm in (flip_middle,) if tiny else (flip_middle, Path.unlink):
            copy = whole.with_name("copy")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            harm(copy / name)
            ended = worker.command((DORYLAX, *_RUN, "--out", copy, "--resume"), whole.parent)
            outcome: Outcome = "survived" if ended.in_one_line else "crashed"
            if ended.code == 0 and run_result(copy / "seed-0") != expected:
                outcome = "lost"
            tally.add(outcome, f"{harm.__name__} of {name}, then resumed", f"{ended.code}: {ended.errors[-600:]}")
    return tally.line("a file of a run damaged or removed, then resumed")
