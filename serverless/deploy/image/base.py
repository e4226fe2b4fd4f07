"""Resolution of the base image to a digest. A tag may move to another image, but a digest never does."""

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
# Indices first: they cover several platforms, and a build may need two.
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_SECONDS = 30.0
_MAX_BYTES = 4 * 2**20  # limit of a manifest in the registry specification


@final
class Answer(NamedTuple):
    """HTTP response of a registry.

    Attributes:
        status: HTTP status.
        headers: Headers, keyed by lower-case name.
        body: Content of the response.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetch(Protocol):
    """Function that fetches a URL."""

    def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Fetch a URL, and return the response for any HTTP status.

        Raises:
            OSError: If there is no response.
        """
        ...


def is_pinned(address: str) -> bool:
    """Return whether an address contains a digest."""
    return _PINNED.fullmatch(address) is not None


def is_base(address: str) -> bool:
    """Return whether an address contains a registry, and a tag or a digest."""
    return is_pinned(address) or _BY_TAG.fullmatch(address) is not None


def pinned(base: str, fetch: Fetch | None = None) -> str:
    """Resolve an image's address to one by digest, by querying its registry if necessary.

    Args:
        base: Address `HOST/NAME:TAG` or `HOST/NAME@sha256:…` (`is_base`).
        fetch: Function that fetches a URL (default: HTTPS with the proxies of the environment).

    Raises:
        InputError: If the registry does not provide the digest or requires a login.
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
    # Compute the digest from the content, instead of trusting the registry's header.
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    if answer.headers.get("docker-content-digest", digest) != digest:
        raise _unknown(base, "its registry's answer is not what it calls it")
    return f"{found['host']}/{found['name']}@{digest}"


def _token(refusal: Answer, fetch: Fetch) -> str:
    """Request an anonymous token from the registry's token server."""
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
