"""Fuzzes one reader of `readers.py` in a process of its own: `python -m harness.fuzz READER FOLDER --runs N`.

Coverage-guided by atheris where that is installed (`pip install ".[fuzz]"`), else by random changes of inputs that are
valid. FOLDER/corpus has inputs to begin with, besides the reader's own, and gets those that covered something new;
FOLDER/found.json says how many were tried, and what went wrong.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

SECONDS = 20
"""An input that takes longer counts as a hang; hundreds a second are usual."""

MEMORY = 2 << 30
"""Bytes of address space that a reader may take, beyond what is there when it begins."""

_LONGEST = 1 << 14  # bytes of an input
_LONGEST_KEPT, _MOST_KEPT = 1 << 12, 40  # of the corpus: bytes of an input, inputs of a reader


class HangError(Exception):
    """A reader that did not come back."""


class Judge:
    """Tries inputs, and keeps what went wrong: one input for each place in the code.

    Args:
        read: the reader.
        ours: errors that it may raise.
    """

    def __init__(self, read: Callable[[bytes], object], ours: type[Exception]) -> None:
        self.tried = 0
        self.faults: dict[str, dict[str, Any]] = {}
        self._read, self._ours = read, ours
        signal.signal(signal.SIGALRM, self._hung)

    def __call__(self, content: bytes) -> None:
        """Tries one."""
        self.tried += 1
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            self._read(content)
        except self._ours:
            pass
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
            fault = self.faults.setdefault(where, {"text": str(error)[:500], "input": "", "times": 0})
            fault["times"] += 1
            fault["input"] = fault["input"] or base64.b64encode(content).decode()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @staticmethod
    def _hung(_number: int, _frame: FrameType | None) -> None:
        raise HangError(f"not back after {SECONDS} s")


def changed(content: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """An input with some random changes, of the kinds that fuzzers make."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at, kind = rng.randrange(len(data) + 1), rng.randrange(6)
        length = rng.choice((1, 1, 2, 4, 8, 32))
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + length] = b""
        elif kind == 2:
            data[at:at] = rng.randbytes(length)
        elif kind == 3:
            data[at : at + length] = rng.choice(
                (b"0", b"-1", b"99999999999999999999", b"null", b"{", b"[[", b'"', b"\n", b"\0" * 4, b"\xff" * 8)
            )
        elif kind == 4:
            begin = rng.randrange(len(data) + 1)
            data[at:at] = data[begin : begin + 4 * length]
        else:
            other = rng.choice(others)
            begin = rng.randrange(len(other) + 1)
            data[at:] = other[begin:]
    return bytes(data[:_LONGEST])


def pack(corpus: Path, file: Path) -> None:
    """Writes some inputs of a folder into a file, a line of base64 each, that is kept with the source.

    They are of all lengths: the shortest are mostly those that a reader refuses first.
    """
    inputs = sorted((path.read_bytes() for path in corpus.iterdir() if not path.name.startswith("seed-")), key=len)
    short = [each for each in inputs if each and len(each) <= _LONGEST_KEPT]
    kept = short[:: -(-len(short) // _MOST_KEPT) or 1]
    file.write_text("".join(base64.b64encode(each).decode() + "\n" for each in kept), encoding="ascii")


def main() -> None:
    """Fuzzes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pack", type=Path, help="write some inputs that covered something new into a file")
    parser.add_argument("--unguided", action="store_true", help="without atheris, even if it is there")
    arguments = parser.parse_args()
    guided = not arguments.unguided and importlib.util.find_spec("atheris") is not None
    if guided:
        import atheris  # type: ignore[import-not-found,unused-ignore]

        instrumented: Any = atheris.instrument_imports(include=["dorylax", "yaml"])
    else:
        instrumented = contextlib.nullcontext()
    with instrumented:
        from dorylax.errors import DorylaxError
        from harness.readers import reader_of

    corpus = arguments.folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    memory = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="dorylax-fuzz-", dir=memory if memory.is_dir() else None))
    reader = reader_of(arguments.reader, scratch)
    kept = [path.read_bytes() for path in sorted(corpus.iterdir())]
    judge = Judge(reader.read, DorylaxError)
    used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    )
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))

    def end() -> None:
        found = {"tried": judge.tried, "guided": guided, "faults": judge.faults}
        (arguments.folder / "found.json").write_text(json.dumps(found), encoding="utf-8")
        if arguments.pack is not None:
            pack(corpus, arguments.pack)
        shutil.rmtree(scratch)
        sys.stdout.flush()
        os._exit(0)  # libFuzzer's own end would be an exit status of its own

    for content in (*reader.seeds, *kept):
        judge(content)
    valid = len(reader.seeds)
    if judge.faults:
        end()
    if guided:
        for k, content in enumerate(reader.seeds):
            (corpus / f"seed-{k}").write_bytes(content)

        def one(content: bytes) -> None:
            judge(content)
            if judge.tried >= arguments.runs + valid:
                end()

        atheris.Setup(
            [
                sys.argv[0],
                f"-seed={arguments.seed + 1}",
                f"-max_len={_LONGEST}",
                "-rss_limit_mb=0",
                "-verbosity=0",
                str(corpus),
            ],
            one,
        )
        atheris.Fuzz()
    rng = random.Random(arguments.seed)
    inputs = [*reader.seeds, *kept]
    for _ in range(arguments.runs):
        judge(changed(rng.choice(inputs), inputs, rng))
    end()


if __name__ == "__main__":
    main()
