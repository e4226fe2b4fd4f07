"""Artefacts in S3: uploaded under their hash, and fetched by sandboxes, which need no rights, through signed URLs."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any, final

from dorylax.errors import RunError
from dorylax.serverless.backends.aws.replies import problem_of
from dorylax.settings.errors import ConfigError
from dorylax.store.base import Location

_VALID_SECONDS = 3600
_AGAIN_SECONDS = 300.0
"""After which a URL is signed again. It expires with the temporary credentials that signed it, and boto3 renews those when
they have about a quarter of an hour left: so any URL that is handed out is good for minutes."""


@final
class S3Artefacts:
    """A folder of artefacts in S3, which runs may share: equal hashes are equal artefacts.

    Args:
        client: boto3's of S3 (`aws_clients.s3_client`).
        location: `s3://bucket/prefix`.
        now: the time, in seconds.

    Raises:
        ConfigError: `location` is not one.
    """

    def __init__(self, client: Any, location: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, now
        try:
            self._location = Location.of(location)
        except ValueError as error:
            raise ConfigError.of("tensor.artefacts", str(error)) from None
        self._urls: dict[str, tuple[str, float]] = {}

    def upload(self, artefacts: Mapping[str, bytes]) -> int:
        """Uploads those that are missing.

        Args:
            artefacts: contents, by SHA-256.

        Returns:
            How many were missing.

        Raises:
            RunError: S3 refuses.
        """
        missing = [sha256 for sha256, content in artefacts.items() if not self._has(sha256, len(content))]
        for sha256 in missing:
            self._ask(
                "put_object",
                sha256,
                Body=artefacts[sha256],
                ContentType="application/octet-stream",
                # S3 compares, so that nothing else is ever stored under a hash.
                ChecksumSHA256=base64.b64encode(bytes.fromhex(sha256)).decode("ascii"),
            )
        return len(missing)

    def url(self, sha256: str) -> str:
        """A URL from which anybody can get an artefact for the next minutes, an hour at most."""
        url, signed = self._urls.get(sha256, ("", 0.0))
        now = self._now()
        if not url or now - signed > _AGAIN_SECONDS:
            url = self._sign(sha256)
            self._urls[sha256] = url, now
        return url

    def close(self) -> None:
        """Closes the client; a second call does nothing."""
        self._client.close()

    def _has(self, sha256: str, nbytes: int) -> bool:
        try:
            found = self._client.head_object(Bucket=self._location.bucket, Key=self._location.key(sha256))
        except Exception as error:
            status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
            # 403 if it is missing and the credentials may not list the bucket: the upload will show whether they may put.
            if status in (403, 404):
                return False
            raise self._refused(error) from None
        return bool(found["ContentLength"] == nbytes)

    def _ask(self, operation: str, sha256: str, **parameters: Any) -> None:
        try:
            getattr(self._client, operation)(Bucket=self._location.bucket, Key=self._location.key(sha256), **parameters)
        except Exception as error:
            raise self._refused(error) from None

    def _sign(self, sha256: str) -> str:
        try:
            url: str = self._client.generate_presigned_url(
                "get_object",
                Params={"Bucket": self._location.bucket, "Key": self._location.key(sha256)},
                ExpiresIn=_VALID_SECONDS,
            )
        except Exception as error:
            raise self._refused(error) from None
        return url

    def _refused(self, error: Exception) -> RunError:
        code = getattr(error, "response", {}).get("Error", {}).get("Code")
        if code == "NoSuchBucket":
            return RunError(f"there is no bucket {self._location.bucket}: make one, or change tensor.artefacts")
        return RunError(f"artefacts cannot be put to {self._location}: {problem_of(error)}")
