from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.buckets import aws, bucket  # noqa: F401

from dorylax.store.base import Storage
from dorylax.store.places import open_storage


@pytest.fixture
def s3(bucket: str) -> Iterator[Storage]:  # noqa: F811
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
