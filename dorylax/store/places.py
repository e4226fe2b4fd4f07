"""The two places of stored files: folders of this machine, and prefixes of buckets in S3 or a service with its protocol."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, final

from dorylax.errors import named
from dorylax.store.aws import class_names, code_of, lasting_problem, s3_client
from dorylax.store.base import (
    Content,
    Location,
    Storage,
    StorageError,
    Writable,
    check_content,
    check_name,
    parse_place,
)
from dorylax.store.durable import (
    arriving_file,
    is_temporary,
    make_folder,
    remove_file,
    remove_folder,
    remove_leftovers,
    write_file,
)

_MISSING, _DENIED = {"NoSuchKey", "NotFound", "404"}, {"AccessDenied", "AllAccessDisabled", "Forbidden", "403"}
_SERVER_ERROR = 500
_OF_REQUESTS = {
    *("ClientError", "BotoCoreError", "Boto3Error", "RetriesExceededError", "HTTPError"),
    *("ConnectionError", "TimeoutError"),
}
"""Errors of boto3, botocore, s3transfer, urllib3 and sockets; other errors do not come from S3."""


@final
class LocalStorage(Storage):
    """Files below a folder (an absolute path), which appears with the first file and disappears with the last one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = str(folder)

    def path(self, name: str) -> Path:
        """See `Storage`."""
        return self.folder / check_name(name)

    def names(self, folder: str = "") -> list[str]:
        """See `Storage`."""
        return sorted(
            str((place / name).relative_to(self.folder))
            for place, names in self._folders(folder)
            for name in names
            if not is_temporary(name) and (place / name).is_file()
        )

    def _folders(self, folder: str) -> Iterator[tuple[Path, list[str]]]:
        """Yield each folder below a folder, itself included, with the names of its files."""

        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):  # others may remove folders meanwhile
                raise error

        top = self.path(folder) if folder else self.folder
        with named(top):
            for place, inner, names in os.walk(top, onerror=refuse):
                inner[:] = [name for name in inner if not is_temporary(name)]
                yield Path(place), names

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        path = self.path(name)
        with named(path):
            return path.read_bytes()

    def put(self, name: str, content: Writable) -> None:
        """See `Storage`."""
        path = self.path(name)
        if isinstance(content, Path):
            with content.open("rb") as source:
                self.put(name, lambda file: shutil.copyfileobj(source, file, 1 << 20))
            return
        make_folder(path.parent)
        write_file(path, content)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        path = self.path(name)
        remove_file(path)
        self._remove_empty(path.parent)

    def clear(self, folder: str = "") -> None:
        """See `Storage`. Running processes keep their temporary files, except in a folder that is deleted."""
        if not folder:
            for place, _ in reversed(list(self._folders(""))):
                remove_leftovers(place)
                with contextlib.suppress(OSError):  # the folder is not empty
                    place.rmdir()
            return
        path = self.path(folder)
        with named(path), contextlib.suppress(FileNotFoundError):
            # Renames it first: a late writer, such as a host of a lost cluster, cannot keep it alive.
            remove_folder(path)
        self._remove_empty(path.parent)

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder and its parents, up to the place itself, as far as they are empty."""
        with contextlib.suppress(OSError):
            while folder.is_relative_to(self.folder):
                folder.rmdir()
                folder = folder.parent

    @contextlib.contextmanager
    def verified(self, folder: str, files: Mapping[str, Content], copies: Path | None = None) -> Iterator[Path]:  # noqa: ARG002
        """See `Storage`."""
        place = self.path(folder) if folder else self.folder
        for name, content in files.items():
            check_content(place / check_name(name), content)
        yield place


@final
class S3Storage(Storage):
    """Objects below a prefix; raises RunError if boto3 cannot be set up.

    Large files are uploaded in several parts at a time. S3 shows an object only when it is complete. The parts of an
    upload whose process was killed stay hidden, until a lifecycle rule of the bucket (`AbortIncompleteMultipartUpload`)
    removes them.
    """

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
        """Copy an object into an open file of this machine; raise FileNotFoundError if there is none."""
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

    @contextlib.contextmanager
    def verified(self, folder: str, files: Mapping[str, Content], copies: Path | None = None) -> Iterator[Path]:
        """See `Storage`."""
        with contextlib.ExitStack() as stack:
            copies = copies or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dorylax-copy-")))
            for name, content in files.items():
                path, there = copies / check_name(name), f"{folder}/{name}" if folder else name
                try:
                    check_content(path, content)
                except (FileNotFoundError, StorageError):  # not copied yet, or damaged since
                    make_folder(path.parent)
                    remove_leftovers(path.parent)
                    with arriving_file(path) as part:
                        self.copy_to(there, part)
                        part.flush()
                        check_content(Path(part.name), content, f"{self.url}/{there}")
            yield copies

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


def open_storage(text: str) -> Storage:
    """Return the storage at a path or below `s3://bucket/prefix`, without any request; errors as of `parse_place`."""
    place = parse_place(text)
    return S3Storage(place) if isinstance(place, Location) else LocalStorage(place)
