"""A tensor task of eight rows, which computes next to nothing: how long it takes is what a call costs."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dorylax.clock import RealClock
from dorylax.program.artefact.stage_file import StageReference, sha256_of
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.remote import RemoteBackend
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.server import DataServer
from dorylax.serverless.task import OperandSource, ResultTarget, TaskKey, TensorTask

ROWS = 8


def call(
    make: Callable[[RunKeys], Invoker], calls: int, *, transport: str = "ipc", timeout: float = 120.0
) -> tuple[float, list[float]]:
    """Starts sandboxes and calls them, one call after the other.

    Args:
        make: makes what starts them.
        calls: how many there are after a first one, which compiles.
        transport: of the rows, "ipc" or "tcp".
        timeout: seconds after which a call has failed.

    Returns:
        Seconds of the start, and of each call, the first among them.
    """
    rows = export.symbolic_shape("n")
    content = bytes(export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct(rows, jnp.float32)).serialize())
    reference = StageReference(sha256_of(content), reads=(0,), literals=(), counted=False, writes=(0,))
    keys, found = RunKeys.make(), []
    with RealClock() as clock:
        backend = RemoteBackend(
            run=keys.run,
            invoker=make(keys),
            data=DataServer(keys, transport=transport),
            references={0: reference},
            artefacts={reference.sha256: content},
            clock=clock,
            num_servers=1,
            num_parameter_servers=1,
            timeout=timeout,
            streaming=False,
        )
        try:
            begin = time.perf_counter()
            clock.run(backend.warm())
            start = time.perf_counter() - begin
            for number in range(calls + 1):
                result = clock.run(backend.run(_task(number), 0))
                found.append(result.end - result.start)
        finally:
            backend.close()
    return start, found


def _task(number: int) -> TensorTask:
    operand = np.zeros(ROWS, np.float32)
    return TensorTask(
        key=TaskKey(number, 0, 0, 0),
        server=0,
        version=-1,
        weights=(),
        operands=(operand,),
        sources=(OperandSource("rows"),),
        targets=(ResultTarget("rows"),),
        count=ROWS,
        size=ROWS,
        flops=ROWS,
        bytes_in=operand.nbytes,
        bytes_out=operand.nbytes,
    )
