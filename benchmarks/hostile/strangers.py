"""Folders and files that somebody else has made are read, and the code that they carry would leave a mark.

Lost: the mark is there, and nobody has said that the code may run. With `--tiny` commands run in this process, else each in
its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import pickle
import py_compile
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, final

import numpy as np

from dorylax import experiments
from dorylax.cli import main
from dorylax.config import RunConfig
from dorylax.errors import DorylaxError
from dorylax.experiments.folder import read_study
from dorylax.experiments.run import main as run_sweep
from dorylax.graph.dataset import Dataset
from dorylax.graph.datasets import legacy_pickle, load
from dorylax.graph.partition import Partition, partition
from dorylax.program.artefact import stage_file
from dorylax.runs.digest import DIGEST, sealed
from dorylax.trainer import Trainer
from hostile.base import Line

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.own_code import MARK, MARKING_CODE

_SECONDS = 300
_TINY = 2
_SWEEP = """\
base: {model.name: "mine.py:Own", data.size: tiny, train.epochs: 1}
grid: {optimizer.name: [adam, "mine.py:lion"]}
"""
_BY_CONFIG = (
    "train --config FOLDER/run/seed-0/config.yaml --no-save",
    "train --config FOLDER/run/seed-0/config.yaml --epochs 2 --out FOLDER/run --resume",
    "info --config FOLDER/run/seed-0/config.yaml",
    "describe --config FOLDER/run/seed-0/config.yaml",
    "partition --config FOLDER/run/seed-0/config.yaml --servers 2 --widths 4",
)
_PREDICT = (
    "predict --run FOLDER/run",
    "predict --run FOLDER/run/seed-0 --data communities",
)
_ON_DATA = (
    "train --data FOLDER/data.npz --no-save --epochs 1",
    "info --data FOLDER/data.npz",
    "describe --data FOLDER/data.npz",
    "partition --data FOLDER/data.npz --servers 2",
    "predict --run FOLDER/run --trust --data FOLDER/data.npz",
)
_YAML = "!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{mark}]]"

Act = Callable[[Path], "Answer"]


@final
@dataclasses.dataclass(frozen=True)
class Answer:
    """What came of an attempt.

    Attributes:
        orderly: whether it did what was asked or was refused in one line.
        text: what it said.
    """

    orderly: bool
    text: str


@final
class _Pickled:
    """What leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return pathlib.Path.touch, (self._mark,)


@final
class _Strangers:
    """Copies of what a stranger has made, one for each attempt: code is executed once in a process.

    Args:
        folder: where they go.
        tiny: whether commands run in this process, and only the first attempts of each kind are made.
    """

    def __init__(self, folder: Path, *, tiny: bool) -> None:
        self._folder, self._tiny, self._count = folder, tiny, 0
        self._made = folder / "made"
        self._made.mkdir()
        (self._made / "mine.py").write_text(MARKING_CODE)
        (self._made / "mine.yaml").write_text(_SWEEP)
        load("communities", size="tiny").save_npz(self._made / "data.npz")
        given = ("--model", "mine.py:Own", "--set", "optimizer.name=mine.py:lion", "--set", "data.size=tiny")
        silence = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        with contextlib.chdir(self._made), silence[0], silence[1]:
            assert main(["train", *given, "--epochs", "1", "--out", "run"]) == 0
            assert run_sweep(["--sweep", "mine.yaml", "--out", "sweep", "--jobs", "1", "--no-report"]) == 0
        (self._made / MARK).unlink()

    def copy(self) -> Path:
        """One more, at a place where nothing has been executed yet."""
        self._count += 1
        copy = shutil.copytree(self._made, self._folder / f"stranger_{self._count}")
        for path in copy.rglob("environment.json"):
            _rewrite(path, lambda text: text.replace(str(self._made), str(copy)))
        return copy

    def command(self, words: str, *further: str) -> Act:
        """An attempt by `dorylax`, from the stranger's folder, where everything it names is found."""

        def act(copy: Path) -> Answer:
            called = [*(word.replace("FOLDER", str(copy)) for word in words.split()), *further]
            return _here(called, copy) if self._tiny else self._in_process(called, copy)

        return act

    def _in_process(self, words: Sequence[str], copy: Path) -> Answer:
        path = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-P", "-m", "dorylax", *words],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return Answer(_is_orderly(done.returncode, done.stderr), done.stderr)

    def tried(
        self, fault: str, attempts: Sequence[Act], change: Callable[[Path], None] = lambda _: None, *, may: bool = False
    ) -> Line:
        """A line of the table.

        Args:
            fault: what it says.
            attempts: each with a copy of its own.
            change: what the stranger does to it first.
            may: whether the code was to run.
        """
        tried = lost = crashed = 0
        for attempt in attempts[:_TINY] if self._tiny else attempts:
            copy = self.copy()
            change(copy)
            answer = attempt(copy)
            tried += 1
            if (copy / MARK).exists() != may:
                lost += 1
                print(f"    lost: {answer.text.strip() or fault}", file=sys.stderr)
            elif not answer.orderly:
                crashed += 1
                print(f"    crashed: {answer.text.strip()}", file=sys.stderr)
            shutil.rmtree(copy)
        return Line(fault, tried, tried - lost - crashed, lost, crashed)


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """Tries to get code executed by having its folder read."""
    strangers = _Strangers(folder, tiny=tiny)
    by_run = [strangers.command(words) for words in (*_PREDICT, *_BY_CONFIG)]
    by_config = [strangers.command(words) for words in _BY_CONFIG]
    trusted = [strangers.command(words, "--trust") for words in (*_PREDICT, *_BY_CONFIG)]
    on_data = [strangers.command(words) for words in _ON_DATA]
    python = [
        _python(lambda copy: RunConfig.load(copy / "run" / "seed-0" / "config.yaml")),
        _python(lambda copy: RunConfig.from_yaml((copy / "run" / "seed-0" / "config.yaml").read_text())),
        _python(lambda copy: Trainer.from_config(read_study(copy / "run").sweep.runs[0].config)),
    ]
    reports = [strangers.command(f"report FOLDER/{name}") for name in ("run", "sweep")]
    frames = [
        _python(lambda copy, name=name, level=level: experiments.load(copy / name, level=level))
        for name in ("run", "sweep")
        for level in ("runs", "epochs")
    ]
    yield strangers.tried("a run names a file of code: its commands", by_run)
    yield strangers.tried("the same, by a file without its schema number", by_config, _without_schema)
    yield strangers.tried("the same, copied to where no run is", [_copied(strangers)])
    yield strangers.tried("a run names a module on Python's path", by_run, _module)
    yield strangers.tried("a run names code: from Python", python)
    yield strangers.tried("to see that it would: the same commands, trusted", trusted, may=True)
    yield strangers.tried("trusted code, with other bytecode beside it", trusted[:1], _bytecode)
    yield strangers.tried("a sweep names code: its report, its frames", [*reports, *frames])
    yield strangers.tried("the same, and it does not say what the code takes", [*reports, *frames], _without_options)
    yield strangers.tried("pickled objects in an archive of data", [*on_data, _python(_data)], _pickled_data)
    yield strangers.tried("a pickle in place of an archive of data", [*on_data, _python(_data)], _pickle_for_data)
    yield strangers.tried("a pickle in a saved partition, a stage, an old data set", list(map(_python, _PICKLES)))
    yield strangers.tried("a pickle in a checkpoint whose checksums are right", list(_checkpoints(strangers)))
    yield strangers.tried("Python objects in YAML: runs, sweeps, clusters, deployments", list(_yaml(strangers)))


def _here(words: Sequence[str], copy: Path) -> Answer:
    """A command in this process."""
    errors = io.StringIO()
    sys.path.insert(0, str(copy))
    try:
        with contextlib.chdir(copy), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = main(words)
    except Exception as error:
        return Answer(orderly=False, text=f"{' '.join(words)}: {type(error).__name__}: {error}")
    finally:
        sys.path.remove(str(copy))
    return Answer(_is_orderly(code, errors.getvalue()), f"{' '.join(words)}: {errors.getvalue()}")


def _is_orderly(code: int, errors: str) -> bool:
    """Whether a command has done what was asked, or said in its last line why not; threads of Orbax may have said more."""
    refusals = [line for line in errors.splitlines() if line.startswith("error: ")]
    return refusals == ([] if code == 0 else errors.splitlines()[-1:]) and code in (0, 1, 2)


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Changes a file of a run, and takes away what says that it was changed."""
    text = change(path.read_text())
    if path.suffix == ".json":
        text = json.dumps({name: value for name, value in json.loads(text).items() if name != "digest"})
    path.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")))


def _python(call: Callable[[Path], object]) -> Act:
    """An attempt in this process, in the stranger's folder."""

    def act(copy: Path) -> Answer:
        try:
            with contextlib.chdir(copy):
                call(copy)
        except DorylaxError as error:
            return Answer("\n" not in str(error), str(error))
        except Exception as error:
            return Answer(orderly=False, text=f"{type(error).__name__}: {error}")
        return Answer(orderly=True, text="")

    return act


def _config(copy: Path) -> Path:
    return copy / "run" / "seed-0" / "config.yaml"


def _without_schema(copy: Path) -> None:
    _rewrite(_config(copy), lambda text: text.replace("schema: 1\n", ""))


def _copied(strangers: _Strangers) -> Act:
    def act(copy: Path) -> Answer:
        shutil.copy(_config(copy), copy / "copy.yaml")
        return strangers.command("info --config FOLDER/copy.yaml")(copy)

    return act


def _module(copy: Path) -> None:
    """The code becomes a module whose name nothing has imported yet."""
    (copy / "mine.py").rename(copy / f"module_of_{copy.name}.py")
    _rewrite(_config(copy), lambda text: text.replace("mine.py:", f"module_of_{copy.name}:"))


def _innocent(copy: Path) -> None:
    """The code no longer leaves a mark, but does all else."""
    mine = copy / "mine.py"
    mine.write_text(mine.read_text().replace(".touch()", ".exists()"))


def _bytecode(copy: Path) -> None:
    """What leaves a mark lies beside innocent code as its bytecode, and says that it needs no comparison."""
    py_compile.compile(
        str(copy / "mine.py"),
        cfile=cache_from_source(str(copy / "mine.py")),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    _innocent(copy)


def _without_options(copy: Path) -> None:
    for path in copy.rglob("sweep.json"):
        _rewrite(path, lambda text: json.dumps(json.loads(text) | {"own_options": {}}))


def _pickle(copy: Path) -> bytes:
    return pickle.dumps(_Pickled(copy / MARK))


def _pickled_data(copy: Path) -> None:
    _innocent(copy)
    with np.load(copy / "data.npz") as archive:
        names = list(archive)
    with zipfile.ZipFile(copy / "data.npz", "w") as archive:
        for name in names:
            array = np.empty(1, object)
            array[0] = _Pickled(copy / MARK)
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, array, allow_pickle=True)


def _pickle_for_data(copy: Path) -> None:
    _innocent(copy)
    (copy / "data.npz").write_bytes(_pickle(copy))


def _data(copy: Path) -> object:
    return Dataset.from_npz(copy / "data.npz")


def _pickled_partition(copy: Path) -> object:
    partition(load("communities", size="tiny").graph, 2, method="random").save(copy / "parts")
    (copy / "parts" / "parts.npy").write_bytes(_pickle(copy))
    return Partition.load(copy / "parts")


def _pickled_stage(copy: Path) -> object:
    content = _pickle(copy)
    path = copy / f"{stage_file.sha256_of(content)}{stage_file.SUFFIX}"
    path.write_bytes(content)
    return stage_file.load(path)


def _pickled_planetoid(copy: Path) -> object:
    (copy / "ind.cora.x").write_bytes(_pickle(copy))
    return legacy_pickle.load(copy / "ind.cora.x")


_PICKLES = (_pickled_partition, _pickled_stage, _pickled_planetoid)


def _checkpoints(strangers: _Strangers) -> Iterator[Act]:
    """Each file of a checkpoint in turn is a pickle, and the manifest says that it was."""
    predict = strangers.command("predict --run FOLDER/run --trust")
    checkpoint = next((strangers.copy() / "run" / "seed-0" / "checkpoints").iterdir())
    names = (str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())
    for name in sorted(names, reverse=True):

        def act(copy: Path, name: str = name) -> Answer:
            _innocent(copy)  # and trusted, so that it is not the model for which the run is refused
            folder = next((copy / "run" / "seed-0" / "checkpoints").iterdir())
            (folder / name).write_bytes(_pickle(copy))
            manifest = folder / "manifest.json"
            if name != manifest.name:
                content: dict[str, Any] = json.loads(manifest.read_text())
                changed = (folder / name).read_bytes()
                content["files"][name] = {"bytes": len(changed), "sha256": stage_file.sha256_of(changed)}
                del content[DIGEST]
                manifest.write_text(json.dumps(sealed(content)))
            return predict(copy)

        yield act


def _yaml(strangers: _Strangers) -> Iterator[Act]:
    """Every file that is read as YAML."""
    wants = (
        ("run/seed-0/config.yaml", "predict --run FOLDER/run --trust"),
        ("run/seed-0/config.yaml", "train --config FOLDER/run/seed-0/config.yaml --trust --no-save"),
        ("sweep/sweep.json", "report FOLDER/sweep"),
        ("cluster.yaml", "train --set pipeline.clock=virtual --set pipeline.cluster=FOLDER/cluster.yaml --no-save"),
        ("aws.yaml", "aws deploy --dry-run --config FOLDER/aws.yaml"),
    )
    for name, words in wants:

        def act(copy: Path, name: str = name, words: str = words) -> Answer:
            path, text = copy / name, f"model.name: {_YAML.format(mark=copy / MARK)}\n"
            if name.endswith(".json"):
                _rewrite(path, lambda sweep: json.dumps(json.loads(sweep) | {"text": text}))
            else:
                path.write_text(f"schema: 1\n{text}")
            return strangers.command(words)(copy)

        yield act
