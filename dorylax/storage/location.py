"""Where files lie, as users write it: a path of this machine, or `s3://bucket/prefix`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[!-~]*))?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")  # with one slash too: `s3:/bucket` is meant to be no folder `s3:`


class Location(NamedTuple):
    """A prefix in S3.

    Attributes:
        bucket: its name.
        prefix: what keys begin with, without a slash at its end; "" for none.
    """

    bucket: str
    prefix: str

    @classmethod
    def of(cls, text: str) -> Location:
        """From `s3://bucket/prefix`.

        Raises:
            ValueError: it is not one.
        """
        found = _S3.fullmatch(text)
        if found is None:
            raise ValueError(f"must be s3://bucket/prefix, got {text!r}")
        return cls(found["bucket"], (found["prefix"] or "").strip("/"))

    def key(self, name: str) -> str:
        """Of an object below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def __str__(self) -> str:
        return f"s3://{'/'.join(self).rstrip('/')}"


def parse(text: str) -> Path | Location:
    """A place that a user wrote: `~` is their home, a relative path is below the current folder, now and later.

    Raises:
        ValueError: it is neither a path nor `s3://bucket/prefix`; the text is what follows the name of a setting.
    """
    if text.startswith("s3://"):
        return Location.of(text)
    if not text.strip() or "\0" in text or _SCHEME.match(text):
        raise ValueError(f"must be a path or s3://bucket/prefix, got {text!r}")
    try:
        return Path(os.path.abspath(Path(text).expanduser()))
    except RuntimeError:
        raise ValueError(f"begins with the home of a user who is not there: {text!r}") from None
