"""What only S3 has: buckets, credentials, connections, parts."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import exceptions
from botocore.exceptions import ClientError
from support.aws import REGION, SECRET, Cloud
from support.mocked_aws import without_credentials

from dorylax.store.base import Content, Storage, StorageError, content_of
from dorylax.store.places import open_storage

CONTENT = Content(3, "0" * 64)
LARGE = bytes(range(256)) * 100_000


def refused(code: str, status: int = 400) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": SECRET}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetObject")


def test_objects_lie_below_the_prefix_alone(s3: Storage, bucket: str) -> None:
    with contextlib.closing(boto3.client("s3")) as client:
        for key in ("some/prefixed", "some/other", "some/prefix/", "some/prefix/empty/"):
            client.put_object(Bucket=bucket, Key=key, Body=b"")
        s3.put("one", b"1")
        assert client.get_object(Bucket=bucket, Key="some/prefix/one")["Body"].read() == b"1"
    assert (s3.url, s3.names()) == (f"s3://{bucket}/some/prefix", ["one"])


def test_a_whole_bucket(bucket: str) -> None:
    with contextlib.closing(open_storage(f"s3://{bucket}")) as storage:
        storage.put("a/one", b"1")
        assert (storage.names(), storage.names("a"), storage.read("a/one")) == (["a/one"], ["a/one"], b"1")


def test_more_objects_than_a_page_has(s3: Storage) -> None:
    names = [f"{number:04}" for number in range(1005)]
    client = s3._client  # type: ignore[attr-defined]
    pages = [{"Contents": [{"Key": f"some/prefix/{name}"} for name in part]} for part in (names[:1000], names[1000:])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "get_paginator", lambda _: type("Pages", (), {"paginate": lambda *_, **__: pages})())
        assert s3.names() == names


def test_a_bucket_that_is_not_there(aws: Cloud, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(LARGE)
    with contextlib.closing(open_storage("s3://nobodys-bucket/x")) as storage:
        for ask in (
            storage.names,
            lambda: storage.put("one", b""),
            lambda: storage.put("one", tmp_path / "source"),
            lambda: storage.read("one"),
            lambda: storage.delete("one"),
        ):
            with pytest.raises(
                StorageError, match=r"^s3://nobodys-bucket/x.*: there is no bucket nobodys-bucket: make one"
            ):
                ask()


def test_without_credentials_it_says_how_to_get_them(s3: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    without_credentials(monkeypatch)
    told = f"^{s3.url}/one: AWS needs credentials .*: get valid credentials"
    with contextlib.closing(open_storage(s3.url)) as storage, pytest.raises(StorageError, match=told):
        storage.put("one", b"")


def test_a_region_that_is_another(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert REGION != "us-east-1"
    with contextlib.closing(open_storage(f"s3://{bucket}")) as storage:
        storage.put("one", b"1")
        assert storage.read("one") == b"1"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (refused("ExpiredToken"), "AWS does not accept the credentials (ExpiredToken): get valid credentials"),
        (refused("AccessDenied", 403), "S3 refuses (AccessDenied): the credentials must allow s3:ListBucket"),
        (refused("403", 403), "S3 refuses (403): the credentials must allow s3:ListBucket"),
        (refused("InternalError", 500), "S3 cannot do this now (InternalError): run again"),
        (refused("SlowDown", 503), "S3 cannot do this now (SlowDown): run again"),
        (refused("Unheard"), "S3 refuses (Unheard, HTTP status 400)"),
        (exceptions.EndpointConnectionError(endpoint_url=SECRET), "S3 cannot be reached (EndpointConnectionError)"),
        (exceptions.ResponseStreamingError(error=SECRET), "S3 cannot be reached (ResponseStreamingError)"),
        (ConnectionResetError(SECRET), "S3 cannot be reached (ConnectionResetError)"),
        (exceptions.SSLError(endpoint_url=SECRET, error=SECRET), "AWS shows no certificate that this machine trusts"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_say_what_to_do(s3: Storage, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(s3._client, "get_object", fail)  # type: ignore[attr-defined]
    with pytest.raises(StorageError, match=f"^{s3.url}/one: {re.escape(told)}") as caught:
        s3.read("one")
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_of_ours_are_none_of_s3s(s3: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3._client, "get_object", lambda **_: {}["Body"])  # type: ignore[attr-defined]
    with pytest.raises(KeyError):
        s3.read("one")


def test_an_upload_that_breaks_off_leaves_what_was_there(
    s3: Storage, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(LARGE)
    s3.put("one", b"old")
    client, parts = s3._client, []  # type: ignore[attr-defined]
    upload_part = client.upload_part

    def second_fails(**options: Any) -> Any:
        parts.append(options["PartNumber"])
        if options["PartNumber"] == 2:
            raise exceptions.ConnectionClosedError(endpoint_url="there")
        return upload_part(**options)

    monkeypatch.setattr(client, "upload_part", second_fails)
    with pytest.raises(StorageError, match=f"^{s3.url}/one: S3 cannot be reached"):
        s3.put("one", source)
    assert 2 in parts
    assert (s3.names(), s3.read("one")) == (["one"], b"old")
    with contextlib.closing(boto3.client("s3")) as other:
        assert "Uploads" not in other.list_multipart_uploads(Bucket=bucket)


def test_a_disk_that_is_full_is_none_of_s3s(s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(bucket: str, key: str, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(s3._client, "download_fileobj", full)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="No space left on device") as caught:
        s3.verified("", {"one": CONTENT}, tmp_path).__enter__()
    assert caught.value.filename == str(tmp_path / "one")
    assert not isinstance(caught.value, StorageError)
    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_breaks_leaves_nothing(s3: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bucket: str, key: str, file: Any) -> None:
        file.write(b"half")
        raise exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2)

    (tmp_path / "source").write_bytes(LARGE)
    s3.put("one", tmp_path / "source")
    content = content_of(tmp_path / "source")
    with monkeypatch.context() as patch:
        patch.setattr(s3._client, "download_fileobj", broken)  # type: ignore[attr-defined]
        with pytest.raises(StorageError, match=f"^{s3.url}/one: S3 cannot be reached"):
            s3.verified("", {"one": content}, tmp_path / "copies").__enter__()
    assert list((tmp_path / "copies").iterdir()) == []
    with s3.verified("", {"one": content}, tmp_path / "copies") as folder:
        assert content_of(folder / "one") == content
