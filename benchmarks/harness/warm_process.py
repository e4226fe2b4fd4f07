"""Commands run one after the other in a process that has imported and compiled everything, with `disk_shim` under them.

What a command prints is caught at the file descriptors, so that what libraries print is seen. A process that dies or
hangs is replaced by a new one.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import json
import os
import selectors
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, final

from harness.disk_shim import Watch, build


@final
@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; -n if signal n killed its process; None if it took too long.
        output: what it printed to standard output.
        errors: what it printed to standard error.
    """

    code: int | None
    output: str
    errors: str


@final
class WarmProcess:
    """A process that runs commands.

    Args:
        folder: for its files: the shim, what it has compiled, what is printed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._shim = build(folder)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process; the next command starts a new one."""
        if self._process is not None:
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.wait()
            self._process = None

    def run(
        self, words: Sequence[str | Path], cwd: Path, watch: Watch | None = None, *, seconds: float = 120.0
    ) -> Ended:
        """Runs a command.

        Args:
            words: the program, `MODULE:FUNCTION`, which is given its arguments and returns the exit code; then these.
            cwd: folder that it runs in.
            watch: what the shim does meanwhile.
            seconds: after which it hangs.
        """
        process = self._process or self._start()
        output, errors = self._folder / "output", self._folder / "errors"
        request = {
            "words": [str(word) for word in words],
            "cwd": str(cwd),
            "watch": watch and watch.arguments(),
            "output": str(output),
            "errors": str(errors),
        }
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            answer = process.stdout.readline() if selector.select(seconds) else None
        code: int | None
        if answer:
            code = int(answer)
        else:
            code = process.wait() if answer == "" else None
            self.stop()
        return Ended(code, output.read_text(errors="replace"), errors.read_text(errors="replace"))

    def _start(self) -> subprocess.Popen[str]:
        compiled = self._folder / "compiled"
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self._shim),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
            "COLUMNS": "1000",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        words = [sys.executable, "-m", "harness.warm_process", str(self._shim)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self._process


@final
class _Shim:
    """The shim in this process, into which it was loaded before everything else."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._watch, self._mark = library.disk_shim_watch, library.disk_shim_mark
        text, number = ctypes.c_char_p, ctypes.c_long
        self._watch.argtypes = [text, text, number, ctypes.c_uint, ctypes.c_int, ctypes.c_int]

    def watch(self, arguments: Sequence[Any]) -> None:
        """See `Watch`."""
        folder, log, *others = arguments
        self._watch(os.fsencode(folder), os.fsencode(log), *others)

    def stop(self) -> None:
        """Watches nobody any more."""
        self._watch(b"", b"", -1, 0, 0, 0)

    def mark(self, text: str) -> None:
        """Writes a mark into the log."""
        self._mark(text.encode())


def _serve(shim: _Shim) -> None:
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for line in requests:
        answers.write(f"{_answer(shim, json.loads(line))}\n")
        answers.flush()


def _answer(shim: _Shim, request: dict[str, Any]) -> int:
    os.chdir(request["cwd"])
    for stream, name in ((1, "output"), (2, "errors")):
        with open(request[name], "wb") as file:
            os.dup2(file.fileno(), stream)
    program, *words = request["words"]
    module, _, name = program.partition(":")
    main = getattr(importlib.import_module(module), name)
    if request["watch"]:
        shim.watch(request["watch"])
    try:
        code = int(main(words))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    shim.mark(f"ended {code}")
    shim.stop()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _mark_checkpoints(shim: _Shim) -> None:
    """Marks when a checkpoint is acknowledged."""
    from dorylax.runs.checkpoint import Checkpoints

    save = Checkpoints.save

    def marked(self: Checkpoints, *arguments: Any) -> Path:
        path = save(self, *arguments)
        shim.mark(f"saved {path}")
        return path

    # Or an error would be told as one of the user's own code, which this file is.
    marked.__code__ = marked.__code__.replace(co_filename=save.__code__.co_filename)
    Checkpoints.save = marked  # type: ignore[method-assign]


if __name__ == "__main__":
    _shim = _Shim(sys.argv[1])
    _mark_checkpoints(_shim)
    _serve(_shim)
