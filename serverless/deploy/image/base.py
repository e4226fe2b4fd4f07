"""The base image by digest: a tag names whatever was pushed last, a digest one image for ever."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple, Protocol, final

from dorylax.errors import InputError

_PINNED = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
_BY_TAG = re.compile(r"(?P<host>[^/\s@]*[.:][^/\s@]*)/(?P<name>[a-z0-9][a-z0-9._/-]*)(?::(?P<tag>[\w][\w.-]{0,127}))?")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
# Indices first: such an image is for several platforms, of which a build may need two.
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_SECONDS = 30.0
_MAX_BYTES = 4 * 2**20  # of a manifest, by the specification of registries


@final
class Answer(NamedTuple):
    """What a registry answers.

    Attributes:
        status: of HTTP.
        headers: by lower-case name.
        body: the content.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetch(Protocol):
    """Gets a URL."""

    def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
        """The answer, whatever its status.

        Raises:
            OSError: there is none.
        """
        ...


def is_pinned(address: str) -> bool:
    """Whether an image is named by digest."""
    return _PINNED.fullmatch(address) is not None


def is_base(address: str) -> bool:
    """Whether an image is named with its registry, by tag or by digest."""
    return is_pinned(address) or _BY_TAG.fullmatch(address) is not None


def pinned(base: str, fetch: Fetch | None = None) -> str:
    """An image's address by digest, which its registry is asked for if the address has none.

    Args:
        base: `HOST/NAME:TAG` or `HOST/NAME@sha256:…` (`is_base`).
        fetch: gets a URL (default: over HTTPS, as the environment says).

    Raises:
        InputError: the registry does not say, or wants a login.
    """
    if is_pinned(base):
        return base
    found = _BY_TAG.fullmatch(base)
    assert found is not None
    fetch = fetch or _fetch
    url = f"https://{found['host']}/v2/{found['name']}/manifests/{found['tag'] or 'latest'}"
    headers = {"Accept": ", ".join(_KINDS)}
    try:
        answer = fetch(url, headers)
        if answer.status == 401:
            answer = fetch(url, headers | {"Authorization": f"Bearer {_token(answer, fetch)}"})
    except (OSError, ValueError, KeyError) as error:
        raise _unknown(base, " ".join(str(error).split())) from None
    if answer.status != 200:
        raise _unknown(base, f"its registry answers {answer.status}")
    # The digest is that of what was sent, whatever the registry calls it.
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    if answer.headers.get("docker-content-digest", digest) != digest:
        raise _unknown(base, "its registry's answer is not what it calls it")
    return f"{found['host']}/{found['name']}@{digest}"


def _token(refusal: Answer, fetch: Fetch) -> str:
    """What anybody gets who asks where the registry says."""
    challenge = dict(_CHALLENGE.findall(refusal.headers.get("www-authenticate", "")))
    query = urllib.parse.urlencode({key: challenge[key] for key in ("service", "scope") if key in challenge})
    if not challenge["realm"].startswith("https://"):
        raise ValueError(f"its registry sends to {challenge['realm']!r}")
    content = json.loads(fetch(f"{challenge['realm']}?{query}", {}).body)
    return str(content.get("token") or content["access_token"])


def _unknown(base: str, problem: str) -> InputError:
    return InputError(f"the digest of the base image {base} is not known ({problem}): give --base NAME@sha256:…")


def _fetch(url: str, headers: Mapping[str, str]) -> Answer:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=_SECONDS) as found:
            status, given, body = found.status, found.headers, found.read(_MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        status, given, body = error.code, error.headers, b""
    if len(body) > _MAX_BYTES:
        raise ValueError(f"its registry sends more than {_MAX_BYTES} bytes")
    return Answer(status, {name.lower(): value for name, value in given.items()}, body)
