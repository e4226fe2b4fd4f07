"""The storage at a place."""

from __future__ import annotations

from dorylax.store.base import Location, Storage
from dorylax.store.base import parse_place as parse
from dorylax.store.local import LocalStorage
from dorylax.store.s3 import S3Storage


def open_storage(text: str) -> Storage:
    """The storage at a path, or below `s3://bucket/prefix`. Nothing is asked or made yet.

    Raises:
        ValueError: it is neither; the text is what follows the name of a setting.
        AwsError: boto3 is not installed, or cannot be set up.
    """
    place = parse(text)
    return S3Storage(place) if isinstance(place, Location) else LocalStorage(place)
