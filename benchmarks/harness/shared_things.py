"""What a process does with a thing that others want at the same time (`contenders`). Each says what came of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib
import os
import time
import warnings
from pathlib import Path
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from dorylax.cli import predictions as prediction_files
from dorylax.folder_lock import locked
from dorylax.graph import datasets
from dorylax.graph.datasets import download as downloads
from dorylax.graph.datasets.base import Source
from dorylax.graph.graph import Graph
from dorylax.graph.partition import files, order_cache
from dorylax.observers.tensorboard import TensorBoard, load_library
from dorylax.runs.result import EpochRecord
from dorylax.serverless.backends.aws.artefacts import S3Artefacts
from dorylax.serverless.data.client import DataClient
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.server import DataServer
from dorylax.serverless.handler.download import download as download_artefact
from dorylax.storage.aws_clients import s3_client

# Imported before they begin, where they are installed.
with contextlib.suppress(ImportError):
    load_library()
    importlib.import_module("boto3.session")

BODY = bytes(range(256)) * 4096
"""Of a file that is fetched: a MiB."""
BODY_SHA256 = hashlib.sha256(BODY).hexdigest()
CHUNKS = 8
"""In which it comes, and is written."""

_VERTICES = 3000


def hold(folder: str, seconds: str) -> str:
    """Has the lock of a folder for a while; nobody else may be in there meanwhile."""
    with locked(Path(folder)):
        alone = Path(folder) / "alone"
        alone.touch(exist_ok=False)
        time.sleep(float(seconds))
        alone.unlink()
    return "held"


def hold_unlocked(folder: str, seconds: str) -> str:
    """The same where the file system has no locks."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = refuse
    with warnings.catch_warnings(record=True) as caught, locked(Path(folder)):
        time.sleep(float(seconds))
    return "warned" if len(caught) == 1 and "cannot be locked" in str(caught[0].message) else "silent"


def fetch(url: str) -> str:
    """Gets a published file into the cache, in chunks that are smaller than it."""
    downloads._CHUNK = len(BODY) // CHUNKS
    (path,) = downloads.fetch("thing", [Source("things/thing.bin", url, BODY_SHA256)]).values()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def order(count: str) -> str:
    """Orders graphs by community, of which the cache keeps two."""
    order_cache.WORTH_KEEPING, order_cache._MOST_FILES = 0, 2
    found = hashlib.sha256()
    for seed in range(int(count)):
        source, target = np.random.default_rng(seed).integers(0, _VERTICES, (2, 4 * _VERTICES))
        graph = Graph.from_coo(source, target, _VERTICES)
        found.update(order_cache.cached_locality_order(graph).tobytes())
    return found.hexdigest()


def partition(folder: str, count: str) -> str:
    """Saves partitions in one folder, as `dorylax partition --out` does, and reads what is then there."""
    fields = {"num_parts": 2, "method": "metis", "balance": "vertices", "seed": 0, "graph_digest": "x"}
    for seed in range(int(count)):
        files.write(Path(folder), np.full(1000, seed % 2, np.int32), {**fields, "seed": seed})
        if read_partition(folder) == "mixed":
            return "mixed"
    return "whole"


def read_partition(folder: str) -> str:
    """Reads the partition that one of them has saved."""
    parts, fields = files.read(Path(folder))
    return "whole" if (parts == fields["seed"] % 2).all() else "mixed"


def predict(file: str, count: str) -> str:
    """Writes predictions to one file, as `dorylax predict --out` does, and reads what is then there."""
    data = datasets.load("communities", size="tiny")
    for _ in range(int(count)):
        prediction_files.write(Path(file), np.full((1000, 2), os.getpid(), np.float32), data)
        if read_predictions(file) == "mixed":
            return "mixed"
    return "whole"


def read_predictions(file: str) -> str:
    """Reads the predictions that one of them has written."""
    with np.load(file) as archive:
        return "whole" if len(np.unique(archive["logits"])) == 1 else "mixed"


def compiled(folder: str) -> str:
    """Compiles with JAX's cache in a folder."""
    for name, value in {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }.items():
        jax.config.update(name, value)
    return str(float(sum(jax.jit(lambda x, n=n: jnp.sin(x * n).sum())(jnp.arange(64.0)) for n in range(1, 9))))


def events(folder: str, epochs: str) -> str:
    """Writes event files for TensorBoard, with the process's id as the loss, and puts them on disk at each epoch."""
    with TensorBoard(folder) as board:
        board.started(int(epochs), 0)
        for epoch in range(int(epochs)):
            board._flushed = 0.0
            board.epoch(EpochRecord(epoch, float(os.getpid()), None, None, None, 1.0))
    return "written"


def put_artefact(location: str) -> str:
    """Puts an artefact to S3, and fetches it from where sandboxes do."""
    store = S3Artefacts(s3_client("eu-central-1"), location)
    try:
        store.upload({BODY_SHA256: BODY})
        return hashlib.sha256(download_artefact(store.url(BODY_SHA256))).hexdigest()
    finally:
        store.close()


def exchange(seconds: str) -> str:
    """Offers arrays to sandboxes over socket files, as a run does, and reads them back as a sandbox does, for a while."""
    keys, until = RunKeys.make(), time.monotonic() + float(seconds)
    with DataServer(keys) as server, DataClient(keys) as client:
        address = server.open("graph 0")
        server.offer(address, "mine", [np.full(1000, os.getpid())])
        while time.monotonic() < until:
            (array,) = client.get(address, "mine")
            if not (array == os.getpid()).all():
                return "another's"
    return "mine"
