"""Artefacts by URL: every failure is a TaskFailedError, which allows another attempt and shows no signature."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from support.http_store import Store

from dorylax.net.errors import TaskFailedError
from dorylax.serverless.handler.download import download, shown


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as found:
        yield found


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 500_000])
def test_gives_what_lies_there(store: Store, content: bytes) -> None:
    store.content["/a"] = content
    assert download(f"{store.url}/a?X-Amz-Signature=c0ffee") == content


def refused(url: str, **options: float) -> str:
    with pytest.raises(TaskFailedError) as caught:
        download(url, **options)
    assert "c0ffee" not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_what_is_not_there(store: Store) -> None:
    assert refused(f"{store.url}/b?X-Amz-Signature=c0ffee") == (
        f"the artefact at {store.url}/b cannot be had: 404 Not Found"
    )


def test_what_ends_too_early(store: Store) -> None:
    store.content["/a"], store.promised["/a"] = b"abc", 10
    assert "ended 7 bytes too early" in refused(f"{store.url}/a?c0ffee")


def test_what_is_too_large(store: Store) -> None:
    store.content["/a"] = b"abc"
    assert download(f"{store.url}/a", max_bytes=3) == b"abc"
    assert "at most 2 bytes" in refused(f"{store.url}/a?c0ffee", max_bytes=2)


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert "Connection refused" in refused(f"http://127.0.0.1:{unused.getsockname()[1]}/a?c0ffee")


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = refused(f"http://127.0.0.1:{silent.getsockname()[1]}/a?c0ffee", timeout=0.05)
    assert "timed out" in text


@pytest.mark.parametrize("url", ["file:///etc/passwd?c0ffee", "ftp://host/a?c0ffee", "/etc/passwd?c0ffee"])
def test_only_the_web(url: str) -> None:
    assert "is fetched by http or https" in refused(url)


def test_what_is_no_url() -> None:
    assert "this is none" in refused("http://[::1/a?c0ffee")
    assert "InvalidURL" in refused("http://host:port/a?c0ffee")
    assert "InvalidURL" in refused("http://127.0.0.1:1/a b?c0ffee")  # the error of the library quotes it


def test_shown_is_without_query_and_fragment() -> None:
    assert (
        shown("https://bucket.s3.amazonaws.com/a/b?X-Amz-Signature=c0ffee#d") == "https://bucket.s3.amazonaws.com/a/b"
    )
