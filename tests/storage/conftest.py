from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from support.aws import Cloud, cloud

from dorylax.storage.base import Storage
from dorylax.storage.choose import open_storage


@pytest.fixture(scope="module")
def aws() -> Iterator[Cloud]:
    """AWS with one bucket."""
    with cloud() as found:
        found.make_bucket()
        yield found


@pytest.fixture
def bucket(aws: Cloud) -> Iterator[str]:
    """An empty one."""
    yield aws.bucket
    with contextlib.closing(boto3.client("s3")) as client:
        for entry in client.list_objects_v2(Bucket=aws.bucket).get("Contents", ()):
            client.delete_object(Bucket=aws.bucket, Key=entry["Key"])


@pytest.fixture
def s3(bucket: str) -> Iterator[Storage]:
    """A prefix of it."""
    with contextlib.closing(open_storage(f"s3://{bucket}/some/prefix/")) as found:
        yield found


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Every kind, empty."""
    if request.param == "s3":
        found: Storage = request.getfixturevalue("s3")
        return found
    return open_storage(str(tmp_path / "a folder" / "below"))
