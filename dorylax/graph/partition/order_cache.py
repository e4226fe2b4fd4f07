"""Orders by community that are kept between runs, since the same graph always gets the same one.

A file is named after everything that its order was computed from, so there is nothing to invalidate: the sample of edges
that `locality` looks at, its version, and those of METIS and NumPy. It ends in the SHA-256 of its name and content; what is
damaged, cut off or another file under that name is computed again. Nothing here is ever an error: a folder that cannot be
written costs time in the next run.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
from pathlib import Path

import numpy as np
from jaxtyping import Int32, Int64

from dorylax.durable import write_file
from dorylax.graph.cache import cache_directory, drop_oldest
from dorylax.graph.compressed import CompressedGraph
from dorylax.graph.partition import locality

_LOG = logging.getLogger(__name__)

WORTH_KEEPING = 100_000
"""Vertices from which computing an order takes more than about a second."""

# 4 bytes a vertex each.
_MOST_FILES = 32
_MOST_BYTES = 2**30
_DIGEST_BYTES = hashlib.sha256().digest_size


def cached_locality_order(graph: CompressedGraph) -> Int64[np.ndarray, " V"]:
    """`locality_order(graph)`, from `<cache>/orders-1` where it is there, and put there where it was not.

    Graphs of less than `WORTH_KEEPING` vertices are not worth a file.
    """
    if graph.num_vertices < max(WORTH_KEEPING, locality.COMMUNITY + 1):
        return locality.locality_order(graph)
    rows, sources = locality.sampled(graph)
    file = cache_directory() / "orders-1" / f"{_key(rows, sources, graph.num_vertices)}.npy"
    order = _read(file, graph.num_vertices)
    if order is None:
        labels = locality.communities_of_sample(rows, sources, graph.num_vertices)
        order = np.argsort(labels, kind="stable").astype(np.int32)
        _write(file, order)
    return order.astype(np.int64)


def _key(rows: Int32[np.ndarray, " N"], sources: Int32[np.ndarray, " N"], num_vertices: int) -> str:
    import pymetis

    made_by = f"{locality.VERSION} {num_vertices} {len(rows)} pymetis {pymetis.version} numpy {np.__version__}\n"
    found = hashlib.sha256(made_by.encode())
    found.update(rows.data)
    found.update(sources.data)
    return found.hexdigest()


def _read(file: Path, num_vertices: int) -> Int32[np.ndarray, " V"] | None:
    """None where there is no such order."""
    try:
        content = file.read_bytes()
        with contextlib.suppress(OSError):  # a cache that is read-only can still be read
            os.utime(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        _LOG.warning("could not read the kept order %s: %s", file, error)
        return None
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if _digest(file, body) != digest:
        _LOG.warning("the kept order %s is damaged: computing it again", file)
        return None
    _LOG.info("order of vertices read from %s", file)
    order = np.load(io.BytesIO(body), allow_pickle=False)
    return order if order.shape == (num_vertices,) and order.dtype == np.int32 else None


def _write(file: Path, order: Int32[np.ndarray, " V"]) -> None:
    content = io.BytesIO()
    np.save(content, order, allow_pickle=False)
    content.write(_digest(file, content.getvalue()))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content.getvalue())
        drop_oldest(file, most_files=_MOST_FILES, most_bytes=_MOST_BYTES)
    except OSError as error:  # a full disk costs time in the next run, nothing else
        _LOG.warning("could not keep the order of vertices as %s: %s", file, error)


def _digest(file: Path, body: bytes) -> bytes:
    found = hashlib.sha256(file.stem.encode())
    found.update(body)
    return found.digest()
