"""The call of METIS, here or in a separate process, which runs this file; the file must not import dorylax.

METIS draws by `rand` of the C library, which has one state per process. If threads of another library draw too, the
same seed may give other parts.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


def rand_is_shared() -> bool:
    """Whether this process is connected to a Ray cluster, whose threads draw by `rand`."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def partition_here(arrays: Sequence[Any], num_parts: int, *, recursive: bool, seed: int) -> np.ndarray:
    """Call METIS, by recursive bisection or k-way. It may raise a MemoryError or RuntimeError.

    `arrays` are offsets, neighbours, and weights of vertices and entries or None, of METIS's own integers.
    """
    import pymetis

    offsets, neighbours, weights, edge_weights = arrays
    found = pymetis.part_graph(
        num_parts,
        adjacency=pymetis.CSRAdjacency(offsets, neighbours),
        vweights=weights,
        eweights=edge_weights,
        recursive=recursive,
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(found.vertex_part)


def partition_apart(arrays: Sequence[Any], num_parts: int, *, recursive: bool, seed: int) -> np.ndarray:
    """The same in a separate process, which takes a copy of the arrays.

    METIS there receives no SIGTERM. This process kills it when a signal handler raises.
    """
    command = [sys.executable, "-P", __file__]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # inherited by all threads of the process
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with process:
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # the process has ended with a message
                pickle.dump((arrays, num_parts, {"recursive": recursive, "seed": seed}), process.stdin, protocol=5)
            found, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"its process ended with exit code {process.returncode}")
    return np.frombuffer(found, arrays[0].dtype)


if __name__ == "__main__":
    given, parts, options = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(partition_here(given, parts, **options).astype(given[0].dtype).tobytes())
