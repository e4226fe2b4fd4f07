"""A storage below a prefix of a bucket in S3, or in a service with the same protocol.

Large files are uploaded in several parts at a time. S3 shows an object only when it is complete. The parts of an upload
whose process was killed stay hidden, until a lifecycle rule of the bucket (`AbortIncompleteMultipartUpload`) removes them.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, final

from dorylax.store.aws import class_names, code_of, lasting_problem, s3_client
from dorylax.store.base import Location, Storage, StorageError, Writable, check_name
from dorylax.store.durable import is_temporary

_MISSING, _DENIED = {"NoSuchKey", "NotFound", "404"}, {"AccessDenied", "AllAccessDisabled", "Forbidden", "403"}
_SERVER_ERROR = 500
_OF_REQUESTS = {
    *("ClientError", "BotoCoreError", "Boto3Error", "RetriesExceededError", "HTTPError"),
    *("ConnectionError", "TimeoutError"),
}
"""Errors of boto3, botocore, s3transfer, urllib3 and sockets; other errors do not come from S3."""


@final
class S3Storage(Storage):
    """Objects below a prefix; raises RunError if boto3 cannot be set up."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self.url = str(location)
        self._client = s3_client()

    def names(self, folder: str = "") -> list[str]:
        """See `Storage`. The bucket must exist."""
        return [name for name in self._names(folder) if not _in_temporary(name)]

    def _names(self, folder: str) -> list[str]:
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

    def copy_to(self, name: str, file: BinaryIO) -> None:
        """See `Storage`."""
        with self._asking(name):
            self._client.download_fileobj(*self._object(name).values(), file)

    def put(self, name: str, content: Writable) -> None:
        """See `Storage`. A function writes into a temporary file first."""
        place = self._object(name).values()
        with contextlib.ExitStack() as stack:
            file: BinaryIO
            if isinstance(content, bytes):
                file = io.BytesIO(content)
            elif isinstance(content, Path):
                file = stack.enter_context(content.open("rb"))
            else:
                file = stack.enter_context(tempfile.TemporaryFile(prefix="dorylax-upload-"))
                content(file)
                file.seek(0)
            with self._asking(name):
                self._client.upload_fileobj(file, *place)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        with self._asking(name):
            self._client.delete_object(**self._object(name))

    def clear(self, folder: str = "") -> None:
        """See `Storage`."""
        for name in self._names(folder):
            if folder or _in_temporary(name):
                self.delete(name)

    def close(self) -> None:
        """See `Storage`."""
        self._client.close()

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._location.bucket, "Key": self._location.key(check_name(name))}

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Turn errors of requests into OSError; pass on errors of the disk."""
        try:
            yield
        except Exception as error:
            if _OF_REQUESTS.isdisjoint(class_names(error)):
                raise
            # Without the cause: its text may quote the request, which is signed.
            raise self._problem(f"{self.url}/{name}".rstrip("/"), error) from None

    def _problem(self, url: str, error: Exception) -> OSError:
        code = code_of(error)
        if code in _MISSING:
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        answer: Any = {} if code is None else getattr(error, "response", {})
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if (lasting := lasting_problem(error)) is not None:
            reason = str(lasting)
        elif code is None:
            reason = f"S3 cannot be reached ({type(error).__name__}): is there a network, and is the region right?"
        elif code == "NoSuchBucket":
            reason = f"there is no bucket {self._location.bucket}: make one, or name another"
        elif code in _DENIED:
            reason = (
                f"S3 refuses ({code}): the credentials must allow s3:ListBucket on the bucket, and s3:GetObject, "
                "s3:PutObject and s3:DeleteObject below the prefix"
            )
        elif status >= _SERVER_ERROR or code in ("SlowDown", "RequestTimeout"):
            reason = f"S3 cannot do this now ({code}): run again"
        else:
            reason = f"S3 refuses ({code}, HTTP status {status})"
        return StorageError(f"{url}: {reason}")


def _in_temporary(name: str) -> bool:
    return any(map(is_temporary, name.split("/")))
