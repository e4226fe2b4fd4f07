"""The base's digest: what a registry is asked, and what is believed."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping

import pytest

from dorylax.errors import InputError
from dorylax.serverless.deploy.image import base as base_module
from dorylax.serverless.deploy.image.base import Answer, is_base, is_pinned, pinned

INDEX = b'{"manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(INDEX).hexdigest()}"
BASE = "registry.example/library/python:3.11-slim"
URL = "https://registry.example/v2/library/python/manifests/3.11-slim"
CHALLENGE = {"www-authenticate": 'Bearer realm="https://login.example/token",service="one",scope="pull:x y"'}


class Registry:
    """Answers by URL, and keeps what it was asked."""

    def __init__(self, **answers: object) -> None:
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.login = False
        self.token = "token"
        self.index = (200, {"docker-content-digest": DIGEST}, INDEX)
        for name, value in answers.items():
            setattr(self, name, value)

    def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append((url, headers))
        if url.startswith("https://login.example/"):
            return (200, {}, json.dumps({self.token: "for anybody"}).encode())
        if self.login and headers.get("Authorization") != "Bearer for anybody":
            return (401, CHALLENGE, b"")
        return self.index


def test_the_latest_of_a_registry_that_calls_its_token_and_its_digest_otherwise() -> None:
    registry = Registry(login=True, token="access_token", index=(200, {}, INDEX))
    assert pinned("registry.example/library/python", registry) == f"registry.example/library/python@{DIGEST}"
    assert registry.asked[0][0] == "https://registry.example/v2/library/python/manifests/latest"


@pytest.mark.parametrize("login", [False, True])
def test_a_tag_becomes_the_digest_of_what_the_registry_sends(login: bool) -> None:
    registry = Registry(login=login)
    assert pinned(BASE, registry) == f"registry.example/library/python@{DIGEST}"
    assert [url for url, _ in registry.asked] == (
        [URL, "https://login.example/token?service=one&scope=pull%3Ax+y", URL] if login else [URL]
    )
    # An index first, since a build may need two platforms.
    assert registry.asked[0][1]["Accept"].startswith("application/vnd.oci.image.index.v1+json, ")
    assert is_pinned(pinned(BASE, registry))


def test_a_digest_is_asked_nobody() -> None:
    base = f"registry.example/python@{DIGEST}"
    assert pinned(base, lambda *_: pytest.fail("asks")) == base


@pytest.mark.parametrize(
    ("registry", "problem"),
    [
        (Registry(index=(404, {}, b"")), "its registry answers 404"),
        (Registry(index=(401, {}, b"")), "'realm'"),
        (
            Registry(index=(200, {"docker-content-digest": f"sha256:{0:064x}"}, INDEX)),
            "its registry's answer is not what it calls it",
        ),
        (
            Registry(index=(401, {"www-authenticate": 'Bearer realm="http://login.example/token"'}, b"")),
            "its registry sends to 'http://login.example/token'",
        ),
    ],
)
def test_what_is_not_believed(registry: Registry, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        pinned(BASE, registry)
    assert str(caught.value) == (
        f"the digest of the base image {BASE} is not known ({problem}): give --base NAME@sha256:…"
    )


def test_without_a_network() -> None:
    def fetch(*_: object) -> Answer:
        raise OSError("Network is unreachable")

    with pytest.raises(InputError, match=r"is not known \(Network is unreachable\): give --base NAME@sha256:…$"):
        pinned(BASE, fetch)


class _Pages(http.server.BaseHTTPRequestHandler):
    """Answers with the path's number as status and header, and what it was asked to accept."""

    def do_GET(self) -> None:
        body = self.headers["Accept"].encode()
        self.send_response(int(self.path[1:]))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Number", self.path[1:])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def pages() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Pages) as server, contextlib.ExitStack() as stack:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        yield f"http://127.0.0.1:{server.server_port}"


def test_over_http(pages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(base_module, "_MAX_BYTES", 3)
    for status, body in ((200, b"abc"), (401, b""), (404, b"")):
        found, headers, content = base_module._fetch(f"{pages}/{status}", {"Accept": "abc"})
        assert (found, headers["x-number"], content) == (status, str(status), body)
    with pytest.raises(ValueError, match="its registry sends more than 3 bytes"):
        base_module._fetch(f"{pages}/200", {"Accept": "abcd"})


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("public.ecr.aws/docker/library/python:3.11-slim", True),
        ("localhost:5000/mine", True),
        (f"registry.example/python@{DIGEST}", True),
        ("python:3.11", False),
        ("registry.example/python@sha256:12", False),
        ("registry.example/python:a b", False),
        ("", False),
    ],
)
def test_addresses(address: str, is_one: bool) -> None:
    assert is_base(address) is is_one
