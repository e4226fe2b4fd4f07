"""Files of runs are damaged, removed, or not written to their end.

Survived: one line says what is wrong, or the run goes on; and it resumes to the same bits.
"""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.forked_commands import ForkServer
from harness.tried_runs import RUN, SAVED_PIPELINE, files, same_results
from hostile.base import Line, Tally


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `hostile.base`."""
    with ForkServer(folder) as server:
        whole = folder / "whole"
        options = (*RUN, *SAVED_PIPELINE)
        first = server.run((*options, "--out", str(whole)))
        if first.code != 0:
            raise RuntimeError(f"the run that is to be damaged has failed: {first.errors}")
        yield _flipped_files(whole, bits=100 if tiny else 2_500)
        yield _flipped_checkpoints(whole, bits=20 if tiny else 500)
        yield _resumed(server, whole, options, tiny=tiny)
        yield _killed(server, whole, options, tiny=tiny)


def _flipped_files(whole: Path, *, bits: int) -> Line:
    """Reads each file of values with a bit flipped."""
    from dorylax.experiments.folder import read_study
    from dorylax.runs import metrics
    from dorylax.runs.directory import DamagedFileError, RunDirectory
    from dorylax.settings.errors import ConfigError

    run = RunDirectory.open(whole / "seed-0")
    readers: dict[Path, Callable[[], Any]] = {
        run.config_path: lambda: run.config,
        run.environment_path: lambda: run.environment,
        run.summary_path: lambda: run.summary,
        run.metrics_path: lambda: metrics.of_run(run),
        whole / "sweep.json": lambda: read_study(whole).sweep,
    }
    tally = Tally()
    for path, read in readers.items():
        value = read()
        for _ in _flips(path, bits // len(readers), seed=len(path.name)):
            try:
                # A flipped name of the digest is one field more, which readers do not know.
                found = read()
                same = {key: found[key] for key in value} == value if isinstance(value, dict) else found == value
                tally.add(survived=same, what=f"{path.name} is read as {found}")
            except (DamagedFileError, ConfigError) as error:
                told = "is damaged" in str(error) or "is not as it was written" in str(error)
                tally.add(survived=told, what=f"{path.name}: {error}")
            except Exception as error:
                tally.crash(f"{path.name}: {error!r}")
    return tally.line("a bit flipped in config, environment, metrics, summary, sweep.json")


def _flipped_checkpoints(whole: Path, *, bits: int) -> Line:
    """Restores with a bit flipped in the newest checkpoint, in the names of its files too."""
    import numpy as np

    from dorylax.runs.checkpoint import Checkpoints, CheckpointWarning

    store = Checkpoints(whole / "seed-0" / "checkpoints")
    older, newer = store.epochs()
    restored = store.restore()
    assert restored is not None

    def judged() -> bool:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = Checkpoints(whole / "seed-0" / "checkpoints").restore()
        if found is None:
            return False
        if found.epochs == older:
            return [one.category for one in seen] == [CheckpointWarning] or not store.path(newer).exists()
        same = found.record == restored.record and found.arrays.keys() == restored.arrays.keys()
        return same and all(
            np.array_equal(array, restored.arrays[group][name], equal_nan=True)
            for group, named in found.arrays.items()
            for name, array in named.items()
        )

    saved = [path for path in sorted(store.path(newer).rglob("*")) if path.is_file()]
    # As many in each file: those that say what the others are matter most, and are small.
    faults = [_flips(path, -(-bits // len(saved)), seed=number) for number, path in enumerate(saved)]
    faults += [_renamed(path) for path in [*saved, store.path(newer)]]
    tally = Tally()
    for fault in faults:
        for _ in fault:
            try:
                tally.add(survived=judged(), what="a checkpoint that was not saved so was restored")
            except Exception as error:
                tally.crash(f"{error!r}")
    return tally.line("a bit flipped in a checkpoint's files and their names")


def _flips(path: Path, count: int, *, seed: int) -> Iterator[None]:
    """Flips one bit after the other, and puts the file right at the end."""
    content = path.read_bytes()
    every = range(8 * len(content))
    for bit in random.Random(seed).sample(every, min(count, len(every))):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        yield
    path.write_bytes(content)


def _renamed(path: Path) -> Iterator[None]:
    """Flips the lowest bit of the last letter of a name."""
    other = path.with_name(path.name[:-1] + chr(ord(path.name[-1]) ^ 1))
    path.rename(other)
    yield
    other.rename(path)


def _resumed(server: ForkServer, whole: Path, options: Sequence[str], *, tiny: bool) -> Line:
    """Damages or removes each file, and gives the command with --resume: refused in one line, or the same bits."""
    tally = Tally()
    names = ["seed-0/summary.json", "seed-0/config.yaml"] if tiny else files(whole)
    for name in names:
        for harm in (_flip_middle,) if tiny else (_flip_middle, Path.unlink):
            copy = _copied(whole)
            harm(copy / name)
            ended = server.run((*options, "--out", str(copy), "--resume"))
            same = ended.code != 0 or same_results(copy, whole)
            tally.judge(ended, f"{harm.__name__} of {name}, then resumed", same=same)
    return tally.line("a file of a run flipped or removed, then resumed")


def _killed(server: ForkServer, whole: Path, options: Sequence[str], *, tiny: bool) -> Line:
    """Kills a run before each of its renames, and resumes it to the same files."""
    tally = Tally()
    for number in [8] if tiny else range(1, 100):
        copy = whole.with_name("killed")
        shutil.rmtree(copy, ignore_errors=True)
        ended = server.run((*options, "--out", str(copy)), kill=number)
        if ended.code == 0:  # it has fewer renames
            break
        # Nothing to continue: the same command starts again.
        resume = ["--resume"] if any(copy.glob("seed-*")) else []
        ended = server.run((*options, "--out", str(copy), *resume))
        same = ended.code == 0 and same_results(copy, whole) and files(copy) == files(whole)
        tally.judge(ended, f"killed before rename {number}, then resumed: {files(copy)}", same=same)
    return tally.line("a run killed before each rename, then resumed")


def _copied(whole: Path) -> Path:
    copy = whole.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    return copy


def _flip_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)
