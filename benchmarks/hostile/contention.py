"""Processes that begin together, are stopped or are killed want one file or folder: locks, downloads, caches, results."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import importlib.util
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from harness.contenders import Contenders, Outcome, judge, outcomes, stopped, until
from harness.shared_things import BODY, BODY_SHA256, CHUNKS
from hostile.base import Line

_AT_ONCE = 4
_SLOW = 0.1
"""Seconds that each chunk of a download takes."""


def lines(folder: Path, *, tiny: bool) -> Iterator[Line]:
    """See `base`."""
    few, many = (1, 2) if tiny else (5, 20)

    def fresh(name: str, number: int) -> Path:
        return folder / f"{name}-{number}"

    yield Line("a folder's lock: taken together", **outcomes(few, lambda n: _locks(fresh("lock", n))))
    yield Line(
        "a folder's lock: its holder is stopped, then goes on",
        **outcomes(few, lambda n: _stopped_holder(fresh("lock-stopped", n))),
    )
    yield Line(
        "a folder's lock: its holder is killed", **outcomes(few, lambda n: _killed_holder(fresh("lock-killed", n)))
    )
    yield Line("a folder of a file system without locks", **outcomes(1, lambda n: _without_locks(fresh("no-locks", n))))
    yield Line("a download: wanted together", **outcomes(few, lambda n: _downloads(fresh("download", n), None)))
    yield Line(
        "a download: who began is killed",
        **outcomes(2 if tiny else 2 * CHUNKS, lambda n: _downloads(fresh("download-killed", n), signal.SIGKILL, n)),
    )
    yield Line(
        "a download: who began is stopped, then goes on",
        **outcomes(few, lambda n: _downloads(fresh("download-stopped", n), signal.SIGSTOP, n)),
    )
    for what, write, read, ending in (
        ("a partition's folder", "partition", "read_partition", ""),
        ("a file of predictions", "predict", "read_predictions", ".npz"),
    ):
        for how, together, kill in (
            ("written together", _AT_ONCE, False),
            ("written together, one is killed", _AT_ONCE, True),
            ("its only writer is killed", 1, True),
        ):
            yield Line(
                f"{what}: {how}",
                **outcomes(
                    many if kill else few,
                    lambda n, c=together, k=kill, w=write, r=read, e=ending: _written(  # type: ignore[misc]
                        folder / f"{w}-{c}-{k}-{n}{e}", w, r, together=c, kill=k, seed=n
                    ),
                ),
            )
    for what, role in (("the cache of vertex orders", "order"), ("JAX's compile cache", "compiled")):
        for how, kill in (("filled together", False), ("filled together, one is killed", True)):
            tries = 1 if tiny else 3 * few if kill else few
            yield Line(
                f"{what}: {how}",
                **outcomes(tries, lambda n, r=role, k=kill: _cached(folder / f"{r}-{k}-{n}", r, kill=k, seed=n)),  # type: ignore[misc]
            )
    for how, kill in (("", False), (", one is killed", True)):
        yield Line(
            f"socket files of runs in one temporary folder{how}",
            **outcomes(few, lambda n, k=kill: _sockets(folder / f"sockets-{k}-{n}", kill=k)),  # type: ignore[misc]
        )
    if tiny:
        return
    for library, what, trial in (
        ("tensorboardX", "a folder of event files: written together", _events),
        ("boto3", "an artefact in S3: put together", _artefacts),
    ):
        if importlib.util.find_spec(library) is None:
            print(f"  left out: {what}: it needs {library}")
            continue
        for how, kill in (("", False), (", one is killed", True)):
            yield Line(
                f"{what}{how}",
                **outcomes(2 * few, lambda n, t=trial, k=kill: t(folder / f"{t.__name__}-{k}-{n}", kill=k, seed=n)),  # type: ignore[misc]
            )


def _locks(folder: Path) -> Outcome:
    with Contenders("hold", folder / "held", 0.3, folder=folder, count=_AT_ONCE) as processes:
        processes.begin()
        ended = processes.ended()
        outcome = judge(ended, {"held"}, "is held by")
        return outcome if ended and any(one.said == "held" for one in ended) else "lost"


def _stopped_holder(folder: Path) -> Outcome:
    with Contenders("hold", folder / "held", 0.3, folder=folder, count=2) as processes:
        processes.begin(0)
        if not until((folder / "held" / "alone").exists):
            return "crashed"
        with stopped(processes.pid(0)):
            processes.begin(1)
            refused = processes.ended(1)
        if judge(refused, set(), f"is held by process {processes.pid(0)}, since") != "survived":
            return "lost"
        return judge(processes.ended(0), {"held"})


def _killed_holder(folder: Path) -> Outcome:
    with Contenders("hold", folder / "held", 0.3, folder=folder, count=2) as processes:
        processes.begin(0)
        if not until((folder / "held" / "alone").exists):
            return "crashed"
        processes.kill(0)
        (folder / "held" / "alone").unlink()
        processes.begin(1)
        return judge(processes.ended(1), {"held"})


def _without_locks(folder: Path) -> Outcome:
    with Contenders("hold_unlocked", folder / "held", 0.1, folder=folder, count=2) as processes:
        processes.begin()
        return judge(processes.ended(), {"warned"})


def _downloads(folder: Path, sent: signal.Signals | None, number: int = 0) -> Outcome:
    """Processes want a file that comes slowly; who has begun, and has some of it, gets a signal."""
    others = range(1, _AT_ONCE)
    part = folder / "cache" / "things" / "thing.bin.part"
    environment = {"DORYLAX_CACHE": str(folder / "cache")}
    with (
        _server() as url,
        Contenders("fetch", url, folder=folder, count=_AT_ONCE, environment=environment) as processes,
    ):
        if sent is None:
            processes.begin()
            return judge(processes.ended(), {BODY_SHA256})
        processes.begin(0)
        begun = number % CHUNKS * (len(BODY) // CHUNKS)
        if not until(lambda: part.exists() and part.stat().st_size >= begun):
            return "crashed"
        if sent == signal.SIGKILL:
            if number >= CHUNKS:  # while the others wait for it
                processes.begin(*others)
                told = f"process {processes.pid(0)}"
                until(lambda: all(told in processes.errors(one) for one in others) or not part.exists())
            processes.kill(0)
            if number < CHUNKS:
                processes.begin(*others)
            return judge(processes.ended(*others), {BODY_SHA256})
        with stopped(processes.pid(0)):
            processes.begin(*others)
            told = f"process {processes.pid(0)}"
            if not until(lambda: all(told in processes.errors(one) for one in others)):
                return "crashed"  # it hung, for all that its user could see
        return judge(processes.ended(), {BODY_SHA256})


def _written(path: Path, write: str, read: str, *, together: int, kill: bool, seed: int) -> Outcome:
    """What is read is one process's, whole, and there is always something to read once something was written."""
    messages = path.with_suffix(".messages")
    with Contenders(write, path, 1, folder=messages, count=1) as first:
        first.begin()
        if judge(first.ended(), {"whole"}) != "survived":
            return "crashed"
    with Contenders(write, path, 40, folder=messages, count=together) as processes:
        processes.begin()
        if kill:
            time.sleep(random.Random(seed).uniform(0.0, 0.3))
            processes.kill(0)
        outcome = judge(processes.ended(), {"whole"})
    for role, *count in ((read,), (write, 1), (read,)):  # whatever was left, it is read, and can be written again
        if outcome == "survived":
            with Contenders(role, path, *count, folder=messages, count=1) as after:
                after.begin()
                outcome = judge(after.ended(), {"whole"})
    return outcome


def _cached(folder: Path, role: str, *, kill: bool, seed: int) -> Outcome:
    """Each gets what one alone gets, also who comes after."""
    cache = folder / "cache"
    cache.mkdir(parents=True)
    argument = cache if role == "compiled" else 6
    environment = {"DORYLAX_CACHE": str(cache)}
    with Contenders(role, argument, folder=folder, count=_AT_ONCE, environment=environment) as processes:
        processes.begin()
        if kill:
            if not until(lambda: any(path.is_file() for path in cache.rglob("*"))):
                return "crashed"
            time.sleep(random.Random(seed).uniform(0.0, 0.05))
            processes.kill(0)
        ended = processes.ended()
    with Contenders(role, argument, folder=folder, count=1, environment=environment) as processes:
        processes.begin()
        after = processes.ended()
    other = {"DORYLAX_CACHE": str(folder / "other")}
    alone = folder / "other" if role == "compiled" else argument
    with Contenders(role, alone, folder=folder, count=1, environment=other) as processes:
        processes.begin()
        right = processes.ended()
    if ended is None or after is None or right is None or right[0].said.startswith("error: "):
        return "crashed"
    return judge([*ended, *after, *right], {right[0].said})


def _sockets(folder: Path, *, kill: bool) -> Outcome:
    """Each run reads what is its own, and its socket files go with it, even if it is killed."""
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="dx-") as short:  # paths of sockets are limited
        environment = {"TMPDIR": short}
        with Contenders("exchange", 0.3, folder=folder, count=_AT_ONCE, environment=environment) as processes:
            processes.begin()
            if kill:
                if not until(lambda: len(list(Path(short).iterdir())) == _AT_ONCE):
                    return "crashed"
                processes.kill(0)
            outcome = judge(processes.ended(), {"mine"})
        if outcome == "survived" and not until(lambda: not list(Path(short).iterdir())):
            return "crashed"
        return outcome


def _events(folder: Path, *, kill: bool, seed: int) -> Outcome:
    """Each process has a file of its own, whose last event alone may be cut off where it was killed."""
    epochs = 20
    with Contenders("events", folder / "events", epochs, folder=folder, count=_AT_ONCE) as processes:
        processes.begin()
        if kill:
            if not until(lambda: len(list((folder / "events").glob("*"))) == _AT_ONCE):
                return "crashed"
            time.sleep(random.Random(seed).uniform(0.0, 0.1))
            processes.kill(0)
        pids = [processes.pid(number) for number in range(_AT_ONCE)]
        outcome = judge(processes.ended(), {"written"})
    written = {pid: steps for path in (folder / "events").iterdir() for pid, steps in [_steps(path)]}
    whole = [written.get(pid) == list(range(epochs)) for pid in pids[int(kill) :]]
    return outcome if outcome != "survived" or all(whole) else "lost"


def _steps(path: Path) -> tuple[int, list[int]]:
    """Of a file of events: the id of the process that wrote it, and the steps of its losses; -1 if there are others'."""
    from dorylax.observers.tensorboard import load_library

    event, data, found = load_library().event, path.read_bytes(), []
    while len(data) >= 12:
        length = int.from_bytes(data[:8], "little")
        if len(data) < 16 + length:
            break
        one = event.FromString(data[12 : 12 + length])
        found += [(int(value.simple_value), one.step) for value in one.summary.value if value.tag == "loss"]
        data = data[16 + length :]
    pids = {pid for pid, _ in found}
    return (pids.pop() if len(pids) == 1 else -1), [step for _, step in found]


def _artefacts(folder: Path, *, kill: bool, seed: int) -> Outcome:
    """Runs of one program put the same stage to S3, and their sandboxes fetch it."""
    with _server(_Bucket) as url:
        _Bucket.content.clear()
        environment = {
            "AWS_ENDPOINT_URL": url.removesuffix("/thing.bin"),
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }
        location = "s3://artefacts/stages"
        with Contenders("put_artefact", location, folder=folder, count=_AT_ONCE, environment=environment) as processes:
            processes.begin()
            if kill:
                time.sleep(random.Random(seed).uniform(0.2, 1.5))
                processes.kill(0)
            outcome = judge(processes.ended(), {BODY_SHA256})
        if outcome == "survived" and set(_Bucket.content.values()) != {BODY}:
            return "lost"
        return outcome


class _Published(http.server.BaseHTTPRequestHandler):
    """Gives the file slowly, and whatever part of it is asked for."""

    def do_GET(self) -> None:
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(BODY) - begin))
        self.end_headers()
        with contextlib.suppress(OSError):  # who asked was killed
            for place in range(begin, len(BODY), len(BODY) // CHUNKS):
                self.wfile.write(BODY[place : place + len(BODY) // CHUNKS])
                time.sleep(_SLOW)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class _Bucket(_Published):
    """As S3: an object is there when all of it has come and its checksum is right, and not before."""

    protocol_version = "HTTP/1.1"
    content: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self) -> None:
        self._answer(self.content.get(urlsplit(self.path).path), body=False)

    def do_GET(self) -> None:
        self._answer(self.content.get(urlsplit(self.path).path), body=True)

    def do_PUT(self) -> None:
        if self.headers.get("Expect") == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        length, found = int(self.headers["Content-Length"]), b""
        with contextlib.suppress(OSError):
            while len(found) < length and (more := self.rfile.read(min(len(BODY) // CHUNKS, length - len(found)))):
                found += more
                time.sleep(_SLOW)
        expected = base64.b64decode(self.headers["x-amz-checksum-sha256"])
        if hashlib.sha256(found).digest() == expected:
            self.content[urlsplit(self.path).path] = found
            self._answer(b"", body=False)

    def _answer(self, content: bytes | None, *, body: bool) -> None:
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if body and content is not None:
            with contextlib.suppress(OSError):
                self.wfile.write(content)


@contextlib.contextmanager
def _server(handler: type[http.server.BaseHTTPRequestHandler] = _Published) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/thing.bin"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
