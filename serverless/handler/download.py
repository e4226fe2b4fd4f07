"""Fetches an artefact from a URL, where the data plane does not, with the standard library: the image needs no other."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from dorylax.serverless.data.errors import DataError

_SECONDS = 30.0
"""How long a sandbox waits for a silent store, which normally answers in tens of milliseconds."""

_MAX_BYTES = 256 * 1024 * 1024
"""Of an artefact, which has kilobytes unless a model has large constants: a wrong URL may lead anywhere."""


def download(url: str, *, timeout: float = _SECONDS, max_bytes: int = _MAX_BYTES) -> bytes:
    """What lies at a URL.

    Args:
        url: http or https.
        timeout: seconds of silence after which it is given up.
        max_bytes: its largest size.

    Raises:
        DataError: it cannot be fetched, or is too large; the text omits the URL's query, which may be a signature.
    """
    # Late: most sandboxes need none of these, and they take as long to import as half of dorylax.
    import http.client
    import urllib.error
    import urllib.request

    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # an address with half a bracket
        raise DataError("an artefact is fetched by a URL, and this is none") from None
    if scheme not in ("http", "https"):
        raise DataError(f"an artefact is fetched by http or https, not from {shown(url)}")
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            content: bytes = answer.read(max_bytes + 1)
            short = answer.length  # bytes that were promised and not sent
    except urllib.error.HTTPError as error:
        with error:
            raise DataError(f"the artefact at {shown(url)} cannot be had: {error.code} {error.reason}") from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"the artefact at {shown(url)} cannot be had: {type(error).__name__}: {reason}") from None
    except http.client.HTTPException as error:  # whose text may quote the URL
        raise DataError(f"the artefact at {shown(url)} cannot be had: {type(error).__name__}") from None
    if len(content) > max_bytes:
        raise DataError(f"the artefact at {shown(url)} must have at most {max_bytes} bytes, and has more")
    if short:
        raise DataError(f"the artefact at {shown(url)} ended {short} bytes too early")
    return content


def shown(url: str) -> str:
    """A URL as errors and logs may show it."""
    return urlunsplit((*urlsplit(url)[:3], "", ""))
