"""The manifest of a folder of arrays: a JSON file that names every array, with its shape, dtype and checksum.

    FOLDER/manifest.json
    FOLDER/<name>.npy       one per array, in the format of `numpy.save`, C order

The writer adds the manifest last, so a folder without one is incomplete. Folders of partitions also hold shards.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from dorylax.graph.validate import GraphError, check_printable

MANIFEST = "manifest.json"
"""Name of the manifest."""

_FORMAT = "dorylax-arrays"
DIGEST = "sha256"
"""Field of a JSON file that holds the digest of the others."""
_LONGEST = 200  # bytes of a file name before its suffix; file systems allow 255


class ArrayEntry(BaseModel):
    """Shape, dtype in NumPy's notation ("<f4"), and CRC-32 (8 hexadecimal digits) of one array."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    shape: tuple[int, ...]
    dtype: str
    crc32: str

    @field_validator("dtype")
    @classmethod
    def _is_dtype(cls, dtype: str) -> str:
        if np.dtype(dtype).hasobject:
            raise ValueError("Python objects are no elements of an array")
        return dtype


class Manifest(BaseModel):
    """The content of manifest.json.

    Attributes:
        arrays: Entries of the arrays under their names.
        values: Single values under their names, such as the name of a data set.
        class_names: Names of the classes, or None.
        provenance: Program, command and sources that made the folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["dorylax-arrays"] = "dorylax-arrays"
    version: Literal[1] = 1
    arrays: dict[str, ArrayEntry] = {}
    values: dict[str, bool | int | float | str] = {}
    class_names: list[str] | list[int] | None = None
    provenance: dict[str, str | int | float | list[str]] = {}

    def to_json(self) -> str:
        """Return the text of the file, which includes its own SHA-256."""
        return signed_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Parse the text of a file.

        Raises a GraphError, whose message continues the name of the file, if it is no manifest, damaged, or of another
        version.
        """
        try:
            fields = json.loads(text)
            if fields.pop("format") != _FORMAT:
                raise GraphError(f"is not the manifest of a folder of arrays: its format must be {_FORMAT!r}")
            if (version := fields.pop("version")) != 1:
                raise GraphError(f"has version {version!r}, and this dorylax reads version 1: update dorylax")
            written = fields.pop(DIGEST)
            found = cls.model_validate_json(json.dumps(fields))
            if digest(found.model_dump(mode="json")) != written:
                raise ValueError("its SHA-256 differs")
        except GraphError:
            raise
        except (ValidationError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise GraphError(
                f"is damaged ({str(error).splitlines()[0]}): restore it from a copy, or make the folder again"
            ) from error
        for name in (*found.arrays, *found.values):
            check_printable("the name of the array", name)
        return found


def is_array_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is a folder with a manifest at a path."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def is_data_path(name: str) -> bool:
    """Whether the name of a data set is a path: it ends in .npz, has a separator, or names a folder of arrays."""
    return name.endswith(".npz") or os.sep in name or is_array_folder(name)


def file_name(array: str) -> str:
    """Return the name of an array's file: characters other than letters, digits and `_.-~` become %XX.

    Raises a GraphError if the name is too long for a file.
    """
    quoted = quote(array, safe="")
    if len(quoted) > _LONGEST:
        raise GraphError(f"the name of the array {array[:40]!r}… is too long for a file: shorten it")
    return f"{quoted}.npy"


def signed_json(fields: Mapping[str, Any]) -> str:
    """Return the text of a JSON file with its own digest."""
    return json.dumps({**fields, DIGEST: digest(fields)}, indent=1, allow_nan=False) + "\n"


def digest(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the fields of a JSON file."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()


SUMMARY = "shards.json"
"""Summary of the shards."""
OLD_PARTITION = ("partition.json", "parts.npy")
"""Files of a partition of an earlier version."""
RECORDS = (SUMMARY, MANIFEST)
"""Files that are stored last: they say that all others are there."""

_OURS = re.compile(r"shards\.json|server-\d+(\.npz)?")


def shard_name(server: int) -> str:
    """Return the name of a server's folder."""
    return f"server-{server}"


def is_of_shards(name: str) -> bool:
    """Whether shards have a file or folder of this name."""
    return _OURS.fullmatch(name) is not None
