"""A loopback web server for files in the published formats, and a cache of its own for each test."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dorylax.graph.datasets import registry


class FileServer:
    """Serves `files` by path; remembers requests; cuts the connection where told to, once for each entry of `cuts`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: dict[str, list[int]] = {}  # path → bytes to send before each cut
        self.requests: list[tuple[str, str | None]] = []  # path, Range header
        self.ranges = True  # whether Range requests are honoured
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False  # closing waits for them
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range") if self.ranges else None
        self.requests.append((request.path, request.headers.get("Range")))
        body = self.files.get(request.path)
        if body is None:
            request.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if start >= len(body) > 0 and wanted:
            request.send_error(416)
            return
        request.send_response(206 if wanted else 200)
        request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        cuts = self.cuts.get(request.path)
        request.wfile.write(body[start : start + cuts.pop(0)] if cuts else body[start:])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    running = FileServer()
    yield running
    running.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and no DORYLAX_DATA."""
    monkeypatch.setenv("DORYLAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DORYLAX_DATA", raising=False)
    return tmp_path / "cache"


Publish = Callable[[str, Mapping[str, bytes]], None]


@pytest.fixture
def publish(server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """`publish(name, files)`: the data set `name` consists of these files on the loopback server."""

    def serve(name: str, files: Mapping[str, bytes]) -> None:
        entry = registry.PUBLISHED[name]
        assert {Path(source.path).name for source in entry.sources} == set(files)
        sources = []
        for source in entry.sources:
            body = files[Path(source.path).name]
            server.files[f"/{source.path}"] = body
            sha256 = hashlib.sha256(body).hexdigest() if source.sha256 else None
            sources.append(dataclasses.replace(source, url=f"{server.url}/{source.path}", sha256=sha256))
        monkeypatch.setitem(registry.PUBLISHED, name, dataclasses.replace(entry, sources=tuple(sources)))

    return serve
