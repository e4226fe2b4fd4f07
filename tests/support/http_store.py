"""A small HTTP server on this machine that has what tests put into it, and may misbehave."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit


class Store:
    """What lies under paths; everything else is 404.

    Attributes:
        url: where it is.
        content: by path.
        promised: by path: a Content-Length other than the content's.
        asked: paths and queries that were asked for, in order.
    """

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.promised: dict[str, int] = {}
        self.asked: list[str] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                store.asked.append(self.path)
                path = urlsplit(self.path).path
                content = store.content.get(path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(store.promised.get(path, len(content or b""))))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="store")

    def __enter__(self) -> Store:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
