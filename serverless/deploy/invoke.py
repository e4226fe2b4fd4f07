"""Test invocations of the deployed function without a task, to measure its start and check its version."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from typing import NamedTuple, final

from dorylax.errors import RunError
from dorylax.net.errors import WireError
from dorylax.net.keys import RunKeys
from dorylax.serverless.deploy.clients import Clients
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.function.invocation import Invocation, read_response
from dorylax.serverless.handler.settings import SandboxSettings

_INIT = re.compile(r"Init Duration: ([0-9.]+) ms")
_MEMORY = re.compile(r"Max Memory Used: ([0-9]+) MB")


@final
class TimedInvocation(NamedTuple):
    """Measurement of one invocation.

    Attributes:
        milliseconds: Time until the response arrived.
        init_milliseconds: Time to start a new sandbox, or None if a sandbox was reused.
        memory_mb: Peak memory of the sandbox in MB, or None if AWS reports none.
    """

    milliseconds: float
    init_milliseconds: float | None
    memory_mb: int | None


def warm_invocation() -> bytes:
    """Return an invocation that only warms up a sandbox, with fresh keys."""
    return Invocation(SandboxSettings(RunKeys.make()), None).encode()


def invoke_test(
    names: Names, clients: Clients, count: int, now: Callable[[], float] = time.perf_counter
) -> list[TimedInvocation]:
    """Invoke the function several times in a row.

    Args:
        names: Names of the deployment's resources.
        clients: AWS clients of the region.
        count: Number of invocations, ≥ 1. The first one may start a sandbox.
        now: Clock in seconds.

    Raises:
        RunError: If an invocation fails or the function has another version of dorylax.
    """
    payload = warm_invocation()
    return [_invoke(names, clients, payload, now) for _ in range(count)]


def _invoke(names: Names, clients: Clients, payload: bytes, now: Callable[[], float]) -> TimedInvocation:
    client = clients("invoke")
    start = now()
    answer = client.invoke(FunctionName=names.name, Payload=payload, LogType="Tail")
    content = answer["Payload"].read()
    seconds = now() - start
    if "FunctionError" in answer:
        raise RunError(f"the function failed: {_failure(content)}; `dorylax aws logs` has more")
    try:
        read_response(content)
    except WireError as error:
        raise RunError(f"the function is not of this release ({error}): run `dorylax aws deploy` again") from None
    tail = base64.b64decode(answer.get("LogResult", "")).decode(errors="replace")
    init, memory = _INIT.search(tail), _MEMORY.search(tail)
    return TimedInvocation(1000 * seconds, float(init[1]) if init else None, int(memory[1]) if memory else None)


def _failure(content: bytes) -> str:
    try:
        found = json.loads(content)
        return " ".join(f"{found.get('errorType', 'error')}: {found['errorMessage']}".split())
    except (ValueError, KeyError, AttributeError, TypeError):
        return "it gives no reason"
