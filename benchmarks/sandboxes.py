"""What a sandbox of AWS's Runtime Interface Emulator costs: its start, and calls that compute next to nothing.

    DORYLAX_RIE=… python benchmarks/sandboxes.py                 # a minute on two cores
    DORYLAX_RIE=… python benchmarks/sandboxes.py --json found.json

- *listening*: from starting the process until the emulator takes connections. It starts no runtime before the first call.
- *first call*: that one, without an event: Python starts, JAX is imported, XLA is started.
- *warm call*: an event of 1 KB that the handler reads and refuses; nothing is fetched or computed.
- *warm task*: a stage of eight rows: the event, rows over the data plane (tcp, encrypted), the stage, rows back, the answer;
  in an emulated function, and in a local worker for comparison.

Medians and 99th percentiles, in milliseconds. Sandboxes are measured one at a time; the first task of each, which compiles,
does not count. Without the emulator its part is left out.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dorylax.serverless.backends.emulator.environment import function_environment
from dorylax.serverless.backends.emulator.installed import find_emulator
from dorylax.serverless.backends.emulator.pool import RUNTIME, emulated_functions
from dorylax.serverless.backends.emulator.process import EmulatedProcess
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.backends.local.pool import local_workers
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.handler.settings import SandboxSettings
from dorylax.settings.errors import ConfigError
from harness.command_line import parsed, parser_of, write_json
from harness.eight_rows import call

TIMEOUT = 120.0
"""Seconds after which a sandbox or a call has failed."""

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
    parser = parser_of(__doc__)
    parser.add_argument("--starts", type=int, default=7, help="of sandboxes, ≥ 1")
    parser.add_argument("--calls", type=int, default=500, help="of each kind, ≥ 1")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parsed(parser, starts=1, calls=1)
    found: Found = defaultdict(list)
    kinds = {
        "emulator": partial(emulated_functions, workers=1, timeout=TIMEOUT),
        "local": partial(local_workers, workers=1),
    }
    try:
        find_emulator(os.environ)
        starts_and_calls(options.starts, options.calls, found)
    except ConfigError as error:
        print(f"left out: {error}")
        del kinds["emulator"]
    for name, make in kinds.items():
        _, found[f"warm task, {name}"] = call(make, options.calls, transport="tcp", timeout=TIMEOUT)
        del found[f"warm task, {name}"][0]
    results = {name: summary(seconds) for name, seconds in found.items()}
    print(f"{'ms':22}{'median':>10}{'p99':>10}{'least':>10}{'most':>10}{'of':>8}")
    for name, row in results.items():
        numbers = "".join(f"{row[f'{kind}_ms']:10.1f}" for kind in ("median", "p99", "least", "most"))
        print(f"{name:22}{numbers}{row['count']:8}")
    write_json(options.json, results)


if __name__ == "__main__":
    main()
