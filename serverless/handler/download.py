"""Downloads an artefact from a URL with the standard library, so that the image stays small."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from dorylax.net.errors import TaskFailedError

_SECONDS = 30.0
"""Time limit for a silent store, which normally replies within tens of milliseconds."""

_MAX_BYTES = 256 * 1024 * 1024
"""Limit of an artefact, usually some kilobytes, in case of a wrong URL."""


def download(url: str, *, timeout: float = _SECONDS, max_bytes: int = _MAX_BYTES) -> bytes:
    """Return the content of a URL.

    Args:
        url: http or https URL.
        timeout: Seconds without data before the download fails.
        max_bytes: Limit of the content in bytes.

    Raises:
        TaskFailedError: The download fails or exceeds the limit. The text omits the URL's query, which may be a signature.
    """
    # Late, because most sandboxes do not need these slow imports.
    import http.client
    import urllib.error
    import urllib.request

    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # a malformed address
        raise TaskFailedError("an artefact is fetched by a URL, and this is none") from None
    if scheme not in ("http", "https"):
        raise TaskFailedError(f"an artefact is fetched by http or https, not from {shown(url)}")
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            content: bytes = answer.read(max_bytes + 1)
            short = answer.length  # missing bytes
    except urllib.error.HTTPError as error:
        with error:
            raise TaskFailedError(f"the artefact at {shown(url)} cannot be had: {error.code} {error.reason}") from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise TaskFailedError(f"the artefact at {shown(url)} cannot be had: {type(error).__name__}: {reason}") from None
    except http.client.HTTPException as error:  # its text may contain the URL
        raise TaskFailedError(f"the artefact at {shown(url)} cannot be had: {type(error).__name__}") from None
    if len(content) > max_bytes:
        raise TaskFailedError(f"the artefact at {shown(url)} must have at most {max_bytes} bytes, and has more")
    if short:
        raise TaskFailedError(f"the artefact at {shown(url)} ended {short} bytes too early")
    return content


def shown(url: str) -> str:
    """Return a URL without its secrets, for errors and logs."""
    return urlunsplit((*urlsplit(url)[:3], "", ""))
