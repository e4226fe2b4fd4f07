"""Published files: location, download and verification. Never asks for input.

A download goes to `<file>.part` and is renamed when it is complete and its SHA-256 is right, so a file under its own
name is complete. After an interruption, the next call continues `<file>.part` with a Range request, and downloads it
again if it is damaged. The modules of the formats interpret the files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import http.client
import logging
import re
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dorylax.errors import InputError, RunError, named
from dorylax.graph.cache import cache_directory
from dorylax.store.durable import move_file, write_file
from dorylax.store.folder_lock import locked

_LOG = logging.getLogger(__name__)
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Source:
    """One published file.

    Attributes:
        path: Its path below the cache directory, `family/file`.
        url: Its address.
        sha256: SHA-256 of its bytes, 64 hexadecimal digits; None if the publisher states none: then the hash of the
            first copy is recorded in `file.sha256`, and later ones must agree (trust on first use).
    """

    path: str
    url: str
    sha256: str | None = None


def is_cached(sources: Sequence[Source]) -> bool:
    """Whether all files exist; their hashes are not compared."""
    return all((cache_directory() / source.path).is_file() for source in sources)


def fetch(name: str, sources: Sequence[Source]) -> Mapping[str, Path]:
    """Fetch all files of a data set into the cache, verify them, and return their paths by file name.

    Warns if it waits for another process that downloads to the same folder.

    Raises:
        RunError: A file can neither be found nor downloaded; the message lists every missing file, its address, its
            SHA-256 and the directory to put it in.
        InputError: Its SHA-256 is wrong; the file has then been deleted.
        OSError: The cache's disk fails; names the file. Received bytes are kept, and the next call continues.
    """
    cache = cache_directory()
    for source in sources:
        file = cache / source.path
        try:
            if not file.is_file():
                with locked(file.parent, waiting=functools.partial(_tell, file.parent)):
                    if not file.is_file():  # now: another process may have fetched it
                        _download(source, file)
        except RunError as error:
            raise RunError(_how_to_get(name, sources, cache, source, error)) from error
        _verify(file, source, file)
    return {Path(source.path).name: cache / source.path for source in sources}


def _tell(folder: Path, holder: str) -> None:
    warnings.warn(f"waiting for {holder}, which downloads to {folder}", stacklevel=2)


def _download(source: Source, file: Path) -> None:
    part = file.with_name(file.name + ".part")
    continued = part.exists() and source.sha256 is not None
    if source.sha256 is None:
        part.unlink(missing_ok=True)  # halves of two versions of a file look alike
    have = -1
    while have < (have := part.stat().st_size if part.exists() else 0):  # as long as each attempt brings something
        try:
            _transfer(source.url, part, have)
            break
        except RunError as error:
            failure = error
    else:
        raise failure
    try:
        _verify(part, source, file)
    except InputError:
        if not continued:
            raise
        # The leftover of an earlier process may be damaged (a power failure, say), and is deleted now.
        _download(source, file)
        return
    move_file(part, file)


def _transfer(url: str, part: Path, have: int) -> None:
    """Send one request, for the bytes after the first `have`, which `part` holds."""
    request = urllib.request.Request(url, headers={"User-Agent": "dorylax", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with _network():
        try:
            response = urllib.request.urlopen(request, timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
                # The server sends nothing more: `part` is whole, or it is not this file and fails its check.
                return
            raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        expected = response.headers.get("Content-Length")
        size = "of unknown size" if expected is None else f"{int(expected):,} bytes"
        _LOG.info("downloading %s, %s%s", url, size, f", continuing at byte {have:,}" if resumed else "")
        received = tenths = 0
        with named(part), part.open("ab" if resumed else "wb") as out:
            while chunk := _read(response):
                out.write(chunk)
                received += len(chunk)
                if expected is not None and (done := 10 * received // max(int(expected), 1)) > tenths:
                    tenths = done
                    _LOG.info("%s: %d %% of %s", part.stem, 10 * tenths, size)
    if expected is not None and received < int(expected):
        raise RunError(f"the connection ended after {received} of {expected} bytes")


def _read(response: http.client.HTTPResponse) -> bytes:
    with _network():
        return response.read(_CHUNK)


@contextlib.contextmanager
def _network() -> Iterator[None]:
    """Separate errors of the network from those of the disk, which are OSErrors, too."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise RunError(error.reason if type(error) is urllib.error.URLError else error) from error


def _verify(file: Path, source: Source, final: Path) -> None:
    """Compare the SHA-256, or record it if none is known. Delete a wrong file."""
    with named(file), file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    record = final.with_name(final.name + ".sha256")
    expected = source.sha256 or (record.read_text("ascii", "replace").strip() if record.is_file() else None)
    if expected is not None and not re.fullmatch("[0-9a-f]{64}", expected):
        raise InputError(f"{record} is damaged, it holds no SHA-256: delete it to take {final} as it is")
    if expected is None:
        write_file(record, found + "\n")
    elif found != expected:
        file.unlink(missing_ok=True)  # another process may have found the same
        told = (
            ""
            if source.sha256
            else f" (recorded in {record} when the file was first seen; delete that to accept a new one)"
        )
        raise InputError(
            f"{final.name} is damaged or another version: SHA-256 is {found}, expected {expected}{told}. "
            f"The file has been deleted; run again to download it from {source.url}"
        )


def _how_to_get(name: str, sources: Sequence[Source], cache: Path, failed: Source, error: Exception) -> str:
    missing = [source for source in sources if source is failed or not (cache / source.path).is_file()]
    lines = [
        f"data set {name!r} is not cached and {failed.url} could not be downloaded ({error}). Run again to continue, "
        f"or put {'this file' if len(missing) == 1 else f'these {len(missing)} files'} in place:"
    ]
    for source in missing:
        check = f"SHA-256 {source.sha256}" if source.sha256 else "no SHA-256 published"
        lines.append(f"  {cache / source.path}  from {source.url}  ({check})")
    lines.append(
        f"or set DORYLAX_DATA to a directory that holds {name}.npz, or DORYLAX_CACHE to another cache directory"
    )
    return "\n".join(lines)
