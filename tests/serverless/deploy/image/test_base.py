"""The base's digest: what a registry is asked, and what is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import pytest

from dorylax.serverless.deploy.errors import DeployError
from dorylax.serverless.deploy.image.base import Answer, is_base, is_pinned, pinned
from dorylax.serverless.deploy.image.dockerfile import default_base

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
        self.index = Answer(200, {"docker-content-digest": DIGEST}, INDEX)
        for name, value in answers.items():
            setattr(self, name, value)

    def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append((url, headers))
        if url.startswith("https://login.example/"):
            return Answer(200, {}, json.dumps({"token": "for anybody"}).encode())
        if self.login and headers.get("Authorization") != "Bearer for anybody":
            return Answer(401, CHALLENGE, b"")
        return self.index


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
        (Registry(index=Answer(404, {}, b"")), "its registry answers 404"),
        (Registry(index=Answer(401, {}, b"")), "'realm'"),
        (
            Registry(index=Answer(200, {"docker-content-digest": f"sha256:{0:064x}"}, INDEX)),
            "its registry's answer is not what it calls it",
        ),
        (
            Registry(index=Answer(401, {"www-authenticate": 'Bearer realm="http://login.example/token"'}, b"")),
            "its registry sends to 'http://login.example/token'",
        ),
    ],
)
def test_what_is_not_believed(registry: Registry, problem: str) -> None:
    with pytest.raises(DeployError) as caught:
        pinned(BASE, registry)
    assert str(caught.value) == (
        f"the digest of the base image {BASE} is not known ({problem}): give --base NAME@sha256:…"
    )


def test_without_a_network() -> None:
    def fetch(*_: object) -> Answer:
        raise OSError("Network is unreachable")

    with pytest.raises(DeployError, match=r"is not known \(Network is unreachable\): give --base NAME@sha256:…$"):
        pinned(BASE, fetch)


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        (default_base((3, 11)), True),
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
