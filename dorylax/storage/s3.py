"""A prefix of a bucket in S3, or in what speaks its language, as a storage.

Large files go in parts, several at a time. S3 shows an object only when it is complete; the parts of an upload whose process
was killed are never shown, and go when the bucket has a lifecycle rule for them (`AbortIncompleteMultipartUpload`).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, final

from dorylax.errors import named
from dorylax.store.aws import class_names, lasting_problem, s3_client
from dorylax.store.base import Content, Location, NotThereError, StorageError, check_content, check_name, content_of
from dorylax.store.durable import arriving_file

_MISSING, _DENIED = {"NoSuchKey", "NotFound", "404"}, {"AccessDenied", "AllAccessDisabled", "Forbidden", "403"}
_SERVER_ERROR = 500
_OF_REQUESTS = {
    *("ClientError", "BotoCoreError", "Boto3Error", "RetriesExceededError", "HTTPError"),
    *("ConnectionError", "TimeoutError"),
}
"""Classes of errors of boto3, botocore, s3transfer, urllib3 and sockets; any other is none of S3's."""


@final
class S3Storage:
    """Objects below a prefix.

    Args:
        location: where.

    Raises:
        AwsError: boto3 is not installed, or cannot be set up.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._client = s3_client()

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return str(self._location)

    def names(self, folder: str = "") -> list[str]:
        """See `Storage`. The bucket must be there."""
        start = self._location.key("")
        prefix = self._location.key(f"{check_name(folder)}/") if folder else start
        with self._asking(folder):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._location.bucket, Prefix=prefix)
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        # Keys that end in a slash are how S3's console shows an empty folder.
        return sorted(key.removeprefix(start) for key in keys if not key.endswith("/"))

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        with self._asking(name):
            content: bytes = self._client.get_object(**self._object(name))["Body"].read()
        return content

    def fetch(self, name: str, path: Path, content: Content) -> None:
        """See `Storage`."""
        with arriving_file(path) as part:
            self._download(name, part)
            part.flush()
            check_content(Path(part.name), content, self._shown(name))

    def download(self, name: str, path: Path) -> None:
        """Copy an object of unknown content to a new file.

        Raises:
            FileNotFoundError: There is no such object.
            OSError: It cannot be read, or the file cannot be written.
        """
        with named(path), path.open("xb") as file:
            self._download(name, file)

    def _download(self, name: str, file: BinaryIO) -> None:
        with self._asking(name):
            self._client.download_fileobj(*self._object(name).values(), file)

    def put(self, name: str, content: bytes) -> None:
        """See `Storage`."""
        with self._asking(name):
            self._client.put_object(**self._object(name), Body=content)

    def put_file(self, name: str, path: Path) -> Content:
        """See `Storage`."""
        place, content = self._object(name), content_of(path)
        with path.open("rb") as file:
            sent = _Hashing(file)
            with self._asking(name):
                self._client.upload_fileobj(sent, *place.values())
        if sent.content != content:
            self.delete(name)
            raise StorageError(
                f"{path} changed while it was put to {self._shown(name)}: run again when nobody writes it"
            )
        return content

    def delete(self, name: str) -> None:
        """See `Storage`."""
        with self._asking(name):
            self._client.delete_object(**self._object(name))

    def close(self) -> None:
        """See `Storage`."""
        self._client.close()

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._location.bucket, "Key": self._location.key(check_name(name))}

    def _shown(self, name: str) -> str:
        return f"{self._location}/{name}".rstrip("/")

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Turns what requests raise into a `StorageError`; errors of the disk stay what they are."""
        try:
            yield
        except Exception as error:
            if _OF_REQUESTS.isdisjoint(class_names(error)):
                raise
            # Without the cause: its text may quote the request, which is signed.
            raise self._problem(self._shown(name), error) from None

    def _problem(self, url: str, error: Exception) -> StorageError:
        if (lasting := lasting_problem(error)) is not None:
            return StorageError(f"{url}: {lasting}")
        response = getattr(error, "response", None)
        if not isinstance(response, Mapping) or "Error" not in response:
            return StorageError(
                f"{url}: S3 cannot be reached ({type(error).__name__}): is there a network, and is the region right?"
            )
        code = str(response["Error"].get("Code", "unknown"))
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket":
            return StorageError(f"{url}: there is no bucket {self._location.bucket}: make one, or name another")
        if code in _MISSING:
            return NotThereError(f"{url} is not there")
        if code in _DENIED:
            return StorageError(
                f"{url}: S3 refuses ({code}): the credentials must allow s3:ListBucket on the bucket, and "
                "s3:GetObject, s3:PutObject and s3:DeleteObject below the prefix"
            )
        if status >= _SERVER_ERROR or code in ("SlowDown", "RequestTimeout"):
            return StorageError(f"{url}: S3 cannot do this now ({code}): run again")
        return StorageError(f"{url}: S3 refuses ({code}, HTTP status {status})")


@final
class _Hashing:
    """A file that is read from its start to its end, once: what is sent of it is what is known of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sha256, self._size = file, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as of a file."""
        found = self._file.read(size)
        self._sha256.update(found)
        self._size += len(found)
        return found

    @property
    def content(self) -> Content:
        """Of what has been read."""
        return Content(self._size, self._sha256.hexdigest())
