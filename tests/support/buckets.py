"""Fixtures of S3, for a `conftest` to import: `aws` and `bucket`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import boto3
import pytest

from support.aws import Cloud, cloud


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
