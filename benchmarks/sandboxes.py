"""What a sandbox of AWS's Runtime Interface Emulator costs: its start, and calls that compute next to nothing.

    DORYLAX_RIE=… python benchmarks/sandboxes.py                 # a minute on two cores
    DORYLAX_RIE=… python benchmarks/sandboxes.py --json found.json

- *listening*: from starting the process until the emulator takes connections. It starts no runtime before the first call.
- *first call*: that one, without an event: Python starts, JAX is imported, XLA is started.
- *warm call*: an event of 1 KB that the handler reads and refuses; nothing is fetched or computed.
- *warm task*: a stage of eight rows: the event, rows over the data plane (tcp, encrypted), the stage, rows back, the answer;
  in an emulated function, and in a local worker for comparison.

Medians and 99th percentiles, in milliseconds. Sandboxes are measured one at a time; the first task of each, which compiles,
does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dorylax.clock import RealClock
from dorylax.program.artefact.stage_file import StageReference, sha256_of
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.backends.emulator.environment import function_environment
from dorylax.serverless.backends.emulator.installed import find_emulator
from dorylax.serverless.backends.emulator.pool import RUNTIME, emulated_functions
from dorylax.serverless.backends.emulator.process import EmulatedProcess
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.backends.local.pool import local_workers
from dorylax.serverless.backends.remote import RemoteBackend
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.server import DataServer
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.serverless.task import OperandSource, ResultTarget, TaskKey, TensorTask

TIMEOUT = 120.0
"""Seconds after which a sandbox or a call has failed."""

ROWS = 8

Found = dict[str, list[float]]


def sandbox() -> EmulatedProcess:
    settings = SandboxSettings(RunKeys.make(), jax=jax_settings())
    return EmulatedProcess(find_emulator(os.environ), RUNTIME, settings, function_environment(os.environ, 1, TIMEOUT))


def until_listening(process: EmulatedProcess) -> None:
    deadline = time.perf_counter() + TIMEOUT
    while time.perf_counter() < deadline:
        try:
            socket.create_connection(process.address, timeout=TIMEOUT).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.001)
    raise TimeoutError(f"an emulator does not listen within {TIMEOUT:g} s")


def starts_and_calls(starts: int, calls: int, found: Found) -> None:
    """Starts sandboxes one after the other; calls the last one."""
    event = b"x" * 1024
    for number in range(starts):
        begin = time.perf_counter()
        process = sandbox()
        try:
            until_listening(process)
            listening = time.perf_counter()
            process.wait_ready(TIMEOUT)
            found["listening"].append(listening - begin)
            found["first call"].append(time.perf_counter() - listening)
            for _ in range(calls if number == starts - 1 else 0):
                begin = time.perf_counter()
                process.ask(event, TIMEOUT)
                found["warm call"].append(time.perf_counter() - begin)
        finally:
            process.end()


def tasks(make: Callable[[RunKeys], Invoker], calls: int) -> list[float]:
    """Seconds of each of so many tasks, but for the first."""
    rows = export.symbolic_shape("n")
    content = bytes(export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct(rows, jnp.float32)).serialize())
    reference = StageReference(sha256_of(content), reads=(0,), literals=(), counted=False, writes=(0,))
    operand = np.zeros(ROWS, np.float32)
    keys, clock, found = RunKeys.make(), RealClock(), []
    backend = RemoteBackend(
        run=keys.run,
        invoker=make(keys),
        data=DataServer(keys, transport="tcp"),
        references={0: reference},
        artefacts={reference.sha256: content},
        clock=clock,
        num_servers=1,
        num_parameter_servers=1,
        timeout=TIMEOUT,
        streaming=False,
    )
    try:
        clock.run(backend.warm())
        for number in range(calls + 1):
            task = TensorTask(
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
            result = clock.run(backend.run(task, 0))
            found.append(result.end - result.start)
    finally:
        backend.close()
        clock.close()
    return found[1:]


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds."""
    ordered = sorted(1000 * value for value in seconds)
    return {
        "count": len(ordered),
        "median_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "least_ms": ordered[0],
        "most_ms": ordered[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=7, help="of sandboxes, ≥ 1")
    parser.add_argument("--calls", type=int, default=500, help="of each kind, ≥ 1")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    found: Found = {"listening": [], "first call": [], "warm call": []}
    starts_and_calls(options.starts, options.calls, found)
    found["warm task, emulator"] = tasks(
        lambda keys: emulated_functions(keys, workers=1, timeout=TIMEOUT), options.calls
    )
    found["warm task, local"] = tasks(lambda keys: local_workers(keys, workers=1), options.calls)
    results = {name: summary(seconds) for name, seconds in found.items()}
    print(f"{'ms':22}{'median':>10}{'p99':>10}{'least':>10}{'most':>10}{'of':>8}")
    for name, row in results.items():
        numbers = "".join(f"{row[f'{kind}_ms']:10.1f}" for kind in ("median", "p99", "least", "most"))
        print(f"{name:22}{numbers}{row['count']:8}")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
