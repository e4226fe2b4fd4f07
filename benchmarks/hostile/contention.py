"""Processes that start together, are stopped or killed want one folder or file: runs, caches, partitions, predictions."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

Outcome = Literal["survived", "lost", "crashed"]

_SECONDS = 120.0
_AT_ONCE = 4
_BODY = bytes(range(256)) * 4096  # a MiB
_CHUNKS = 8
_VERTICES = 3000


# What a process does, once it is told to begin.


def hold(folder: str, seconds: str) -> str:
    """Has the lock of a folder for a while; nobody else may be in there meanwhile."""
    from dorylax.folder_lock import locked

    with locked(Path(folder)):
        alone = Path(folder) / "alone"
        alone.touch(exist_ok=False)
        time.sleep(float(seconds))
        alone.unlink()
    return "held"


def hold_unlocked(folder: str, seconds: str) -> str:
    """The same where the file system has no locks."""
    import errno
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = refuse
    from dorylax.folder_lock import locked

    with warnings.catch_warnings(record=True) as caught, locked(Path(folder)):
        time.sleep(float(seconds))
    return "warned" if len(caught) == 1 and "cannot be locked" in str(caught[0].message) else "silent"


def download(url: str) -> str:
    """Gets a published file into the cache, in chunks that are smaller than it."""
    from dorylax.graph.datasets import download
    from dorylax.graph.datasets.base import Source

    download._CHUNK = len(_BODY) // _CHUNKS
    (path,) = download.fetch("thing", [Source("things/thing.bin", url, hashlib.sha256(_BODY).hexdigest())]).values()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def order(count: str) -> str:
    """Orders graphs by community, of which the cache keeps two."""
    import numpy as np

    from dorylax.graph.graph import Graph
    from dorylax.graph.partition import order_cache

    order_cache.WORTH_KEEPING, order_cache._MOST_FILES = 0, 2
    found = hashlib.sha256()
    for seed in range(int(count)):
        source, target = np.random.default_rng(seed).integers(0, _VERTICES, (2, 4 * _VERTICES))
        graph = Graph.from_edges(source, target, num_vertices=_VERTICES)
        found.update(order_cache.cached_locality_order(graph).tobytes())
    return found.hexdigest()


def partition(folder: str, count: str) -> str:
    """Saves partitions in one folder, as `dorylax partition --out` does, and reads what is then there."""
    import numpy as np

    from dorylax.graph.partition import files

    fields = {"num_parts": 2, "method": "metis", "balance": "vertices", "seed": 0, "graph_digest": "x"}
    for seed in range(int(count)):
        files.write(Path(folder), np.full(1000, seed % 2, np.int32), {**fields, "seed": seed})
        parts, read = files.read(Path(folder))
        if not (parts == read["seed"] % 2).all():
            return "mixed"
    return "whole"


def predictions(file: str, count: str) -> str:
    """Writes predictions to one file, as `dorylax predict --out` does, and reads what is then there."""
    import numpy as np

    from dorylax.cli.predictions import write

    for _ in range(int(count)):
        write(Path(file), np.full((1000, 2), os.getpid(), np.float32), None)  # type: ignore[arg-type]  # of no classes
        with np.load(file) as archive:
            if len(np.unique(archive["logits"])) != 1:
                return "mixed"
    return "whole"


def compiled(folder: str) -> str:
    """Compiles with JAX's cache in a folder."""
    import jax
    import jax.numpy as jnp

    for name, value in {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(name, value)
    return str(float(sum(jax.jit(lambda x, n=n: jnp.sin(x * n).sum())(jnp.arange(64.0)) for n in range(1, 9))))


ROLES: dict[str, Callable[..., str]] = {
    role.__name__: role for role in (hold, hold_unlocked, download, order, partition, predictions, compiled)
}


def main() -> int:
    """Of a process: waits for a line, and prints what came of it, an error as the command line would."""
    from dorylax.terminal.failures import explain

    role, *arguments = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print(ROLES[role](*arguments), flush=True)
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        print(f"error: {explained.line}", flush=True)
    return 0


# What starts them.


class Ended(NamedTuple):
    """What has become of a process: its exit status, and what it printed."""

    status: int
    said: str
    errors: str


@final
class Processes:
    """Processes of a role, which have all imported what they need; killed at the end if they are still there."""

    def __init__(
        self, role: str, *arguments: object, count: int = _AT_ONCE, environment: dict[str, str] | None = None
    ) -> None:
        command = [sys.executable, __file__, role, *map(str, arguments)]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        variables = {**os.environ, **(environment or {})}
        self.all = [subprocess.Popen(command, text=True, env=variables, **pipes) for _ in range(count)]

    def __enter__(self) -> Processes:
        for one in self.all:
            assert one.stdout is not None
            one.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.all:
            one.kill()
            one.communicate()

    def begin(self, *which: int) -> None:
        """Lets them begin, at once."""
        for number in which or range(len(self.all)):
            pipe = self.all[number].stdin
            assert pipe is not None
            pipe.write("go\n")
            pipe.flush()

    def ended(self, *which: int) -> list[Ended] | None:
        """Waits for them; None if they do not end."""
        found = []
        for number in which or range(len(self.all)):
            one = self.all[number]
            try:
                said, errors = one.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                return None
            found.append(Ended(one.returncode, said.strip(), errors))
        return found


def _judge(ended: Sequence[Ended] | None, right: set[str], refusal: str | None = None) -> Outcome:
    """Survived, if each says what is right, or is refused in one line that has these words; killed ones say nothing."""
    if ended is None or any("Traceback" in one.errors or one.status not in (0, -signal.SIGKILL) for one in ended):
        return "crashed"
    for one in ended:
        refused = refusal is not None and one.said.startswith("error: ") and refusal in one.said
        if one.status == 0 and one.said not in right and not refused:
            return "crashed" if one.said.startswith("error: ") else "lost"
    return "survived"


def _together(tries: int, attempt: Callable[[int], Outcome]) -> dict[str, int]:
    found = [attempt(number) for number in range(tries)]
    return {"tried": tries, **{name: found.count(name) for name in ("survived", "lost", "crashed")}}


def lines(folder: Path, *, tiny: bool) -> Iterator[Any]:
    """Tries the faults."""
    from hostile.base import Line

    few = 1 if tiny else 5

    def locks(number: int) -> Outcome:
        with Processes("hold", folder / f"lock-{number}", 0.3) as processes:
            processes.begin()
            ended = processes.ended()
            outcome = _judge(ended, {"held"}, "is held by")
            return outcome if ended and any(one.said == "held" for one in ended) else "lost"

    yield Line("a folder's lock: taken together", **_together(few, locks))
    yield Line("a folder's lock: its holder is stopped, then goes on", **_together(1, lambda _: _stopped(folder)))
    if not tiny:
        yield Line(
            "a folder's lock: its holder is killed", **_together(few, lambda n: _killed_holder(folder / f"k{n}"))
        )
    unlocked = folder / "unlocked"

    def no_locks(_: int) -> Outcome:
        with Processes("hold_unlocked", unlocked, 0.1, count=2) as processes:
            processes.begin()
            return _judge(processes.ended(), {"warned"})

    yield Line("a folder of a file system without locks", **_together(1, no_locks))
    yield Line("a download: wanted together", **_together(few, lambda n: _downloads(folder / f"d{n}", None)))
    yield Line(
        "a partition's folder: written together", **_together(few, lambda n: _written(folder / f"p{n}", "partition"))
    )
    if tiny:
        return
    yield Line("a download: one is killed", **_together(few, lambda n: _downloads(folder / f"dk{n}", signal.SIGKILL)))
    yield Line(
        "a download: one is stopped, then goes on",
        **_together(few, lambda n: _downloads(folder / f"ds{n}", signal.SIGSTOP)),
    )
    yield Line(
        "a partition's folder: one is killed",
        **_together(20, lambda n: _written(folder / f"pk{n}", "partition", kill=n)),
    )
    yield Line(
        "predictions' file: written together", **_together(few, lambda n: _written(folder / f"f{n}.npz", "predictions"))
    )
    yield Line(
        "predictions' file: one is killed",
        **_together(few, lambda n: _written(folder / f"fk{n}.npz", "predictions", kill=n)),
    )
    for what, kill in (("made together", False), ("made together, one is killed", True)):
        yield Line(
            f"the cache of vertex orders: {what}",
            **_together(few, lambda n, k=kill: _same(folder / f"o{k}{n}", "order", kill=k)),
        )
        yield Line(
            f"JAX's compile cache: {what}",
            **_together(few, lambda n, k=kill: _same(folder / f"c{k}{n}", "compiled", kill=k)),
        )
    yield Line("a run directory: trained in together", **_together(2, lambda n: _trained(folder / f"r{n}", stop=False)))
    yield Line(
        "a run directory: who trains there is stopped, then goes on",
        **_together(1, lambda _: _trained(folder / "rs", stop=True)),
    )


def _stopped(folder: Path) -> Outcome:
    with Processes("hold", folder / "stopped", 1.0, count=2) as processes:
        processes.begin(0)
        if not _until((folder / "stopped" / "alone").exists):
            return "crashed"
        processes.all[0].send_signal(signal.SIGSTOP)
        processes.begin(1)
        refused = processes.ended(1)
        processes.all[0].send_signal(signal.SIGCONT)
        if _judge(refused, set(), f"is held by process {processes.all[0].pid}, since") != "survived":
            return "lost"
        return _judge(processes.ended(0), {"held"})


def _killed_holder(folder: Path) -> Outcome:
    with Processes("hold", folder, 0.2, count=2) as processes:
        processes.begin(0)
        if not _until((folder / "alone").exists):
            return "crashed"
        processes.all[0].kill()
        processes.all[0].wait()
        (folder / "alone").unlink()
        processes.begin(1)
        return _judge(processes.ended(1), {"held"})


def _downloads(cache: Path, number: signal.Signals | None) -> Outcome:
    """Processes want a file that comes slowly; one of them, whoever has begun, gets a signal."""
    with _server() as url, Processes("download", url, environment={"DORYLAX_CACHE": str(cache)}) as processes:
        if number is None:
            processes.begin()
            return _judge(processes.ended(), {hashlib.sha256(_BODY).hexdigest()})
        processes.begin(0)
        part = cache / "things" / "thing.bin.part"
        if not _until(lambda: part.exists() and part.stat().st_size > 0):
            return "crashed"
        processes.all[0].send_signal(number)
        others = range(1, _AT_ONCE)
        processes.begin(*others)
        if number == signal.SIGSTOP:
            time.sleep(1.0)  # for the others to come, and wait
            processes.all[0].send_signal(signal.SIGCONT)
        ended = processes.ended(*others)
        told = f"process {processes.all[0].pid}"
        if number == signal.SIGSTOP and ended and not all(told in one.errors for one in ended):
            return "crashed"  # it hung, for all that its user could see
        return _judge(ended, {hashlib.sha256(_BODY).hexdigest()})


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """Gives the file in two seconds, and whatever part of it is asked for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(_BODY) - begin))
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked was killed
                for place in range(begin, len(_BODY), len(_BODY) // _CHUNKS):
                    self.wfile.write(_BODY[place : min(place + len(_BODY) // _CHUNKS, len(_BODY))])
                    time.sleep(0.25)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/thing.bin"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _written(path: Path, role: str, *, kill: int | None = None) -> Outcome:
    with Processes(role, path, 30) as processes:
        processes.begin()
        if kill is not None:
            time.sleep(random.Random(kill).uniform(0.02, 0.3))
            processes.all[0].kill()
        outcome = _judge(processes.ended(), {"whole"})
    if outcome == "survived":
        with Processes(role, path, 1, count=1) as processes:  # whatever was left, it can be written again
            processes.begin()
            return _judge(processes.ended(), {"whole"})
    return outcome


def _same(folder: Path, role: str, *, kill: bool) -> Outcome:
    """Each gets what one alone gets, also who comes after."""
    folder.mkdir()
    arguments = (folder,) if role == "compiled" else (6,)
    environment = {"DORYLAX_CACHE": str(folder)}
    with Processes(role, *arguments, environment=environment) as processes:
        processes.begin()
        if kill:
            time.sleep(0.1)
            processes.all[0].kill()
        ended = processes.ended()
    with Processes(role, *arguments, count=1, environment=environment) as processes:
        processes.begin()
        after = processes.ended()
    if ended is None or after is None:
        return "crashed"
    return _judge([*ended, *after], {after[0].said})


def _trained(folder: Path, *, stop: bool) -> Outcome:
    """`dorylax train` twice in one folder: one trains, the other is refused, and what is there is one run's."""
    out = folder / "out"
    command = [sys.executable, "-m", "dorylax", "train", "--data", "communities", "--set", "data.size=tiny"]
    command += ["--model", "gcn", "--epochs", "200", "--out", str(out)]
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, **pipes)
    if stop and not _until((out / "seed-0" / "metrics.jsonl").exists):
        first.kill()
        first.communicate()
        return "crashed"
    if stop:
        first.send_signal(signal.SIGSTOP)
    second = subprocess.Popen([*command, "--resume"] if stop else command, **pipes)
    try:
        if stop:
            _, refusal = second.communicate(timeout=_SECONDS)
            first.send_signal(signal.SIGCONT)
            if second.returncode != 2 or f"process {first.pid}" not in refusal or refusal.count("\n") != 1:
                return "lost" if second.returncode == 0 else "crashed"
        said = [one.communicate(timeout=_SECONDS)[1] for one in ((first,) if stop else (first, second))]
    except subprocess.TimeoutExpired:
        return "crashed"
    finally:
        for one in (first, second):
            one.kill()
            one.communicate()
    if any("Traceback" in text for text in said) or {first.returncode, second.returncode} - {0, 2}:
        return "crashed"
    if 0 not in (first.returncode, second.returncode):
        return "lost"
    summary = json.loads((out / "seed-0" / "summary.json").read_text())
    epochs = (out / "seed-0" / "metrics.jsonl").read_text().splitlines()
    alone = summary["stopped"] == "epochs" and [json.loads(line)["epoch"] for line in epochs] == list(range(200))
    return "survived" if alone else "lost"


def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _SECONDS
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


if __name__ == "__main__":
    sys.exit(main())
