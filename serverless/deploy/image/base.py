"""Addresses of base images, and their resolution to a digest. A tag may move to another image, but a digest never does."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping

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

Answer = tuple[int, Mapping[str, str], bytes]
"""HTTP response of a registry, whatever its status: the status, the headers, and the content."""

Fetch = Callable[[str, Mapping[str, str]], Answer]
"""Function that fetches a URL with some headers. Raises OSError if there is no response."""


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
    found, fetch = _BY_TAG.fullmatch(base), fetch or _fetch
    assert found is not None
    url = f"https://{found['host']}/v2/{found['name']}/manifests/{found['tag'] or 'latest'}"
    accept = {"Accept": ", ".join(_KINDS)}
    try:
        status, headers, body = fetch(url, accept)
        if status == 401:
            token = _token(headers.get("www-authenticate", ""), fetch)
            status, headers, body = fetch(url, accept | {"Authorization": f"Bearer {token}"})
        if status != 200:
            raise ValueError(f"its registry answers {status}")
        # Compute the digest from the content, instead of trusting the registry's header.
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if headers.get("docker-content-digest", digest) != digest:
            raise ValueError("its registry's answer is not what it calls it")
    except (OSError, ValueError, KeyError) as error:
        problem = " ".join(str(error).split())
        raise InputError(
            f"the digest of the base image {base} is not known ({problem}): give --base NAME@sha256:…"
        ) from None
    return f"{found['host']}/{found['name']}@{digest}"


def _token(challenge: str, fetch: Fetch) -> str:
    """Request an anonymous token from the registry's token server."""
    parameters = dict(_CHALLENGE.findall(challenge))
    query = urllib.parse.urlencode({key: parameters[key] for key in ("service", "scope") if key in parameters})
    if not parameters["realm"].startswith("https://"):
        raise ValueError(f"its registry sends to {parameters['realm']!r}")
    content = json.loads(fetch(f"{parameters['realm']}?{query}", {})[2])
    return str(content.get("token") or content["access_token"])


def _fetch(url: str, headers: Mapping[str, str]) -> Answer:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=_SECONDS) as found:
            status, given, body = found.status, found.headers, found.read(_MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        status, given, body = error.code, error.headers, b""
    if len(body) > _MAX_BYTES:
        raise ValueError(f"its registry sends more than {_MAX_BYTES} bytes")
    return status, given, body
