"""Training on a function of AWS: not a bit of the result may change, whatever AWS answers and whichever sandbox dies.

AWS is moto's control plane; the function's sandboxes are run by AWS's emulator behind its Invoke.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from moto.awslambda.exceptions import LambdaClientError
from support.aws import SECRET, Cloud, Sandboxes, ThrottledError, cloud
from support.backends import need_emulator
from support.leftovers import nothing_left
from support.local_runs import Undisturbed, check, config, running
from support.rie import Emulated, Reply, emulated

from dorylax.pipeline.config import PipelineConfig

EPOCHS = 6

pytestmark = pytest.mark.usefixtures("one_compilation")


@pytest.fixture(scope="module")
def sandboxes(one_compilation: None) -> Iterator[list[Emulated]]:
    need_emulator()
    with emulated(2) as found:
        yield found


@pytest.fixture
def aws(sandboxes: list[Emulated]) -> Iterator[Cloud]:
    with cloud() as found:
        found.make_function()
        found.make_bucket()
        found.answer = Sandboxes(sandboxes)
        yield found


def on(aws: Cloud, **changed: Any) -> PipelineConfig:
    """On two sandboxes, whose stages lie in S3."""
    tensor = {"workers": 2, "function": aws.function, "host": "127.0.0.1", "artefacts": f"s3://{aws.bucket}/stages"}
    return config(backend="aws", **tensor | changed)


def test_gives_the_bits_of_local_workers(aws: Cloud, undisturbed: Undisturbed) -> None:
    with nothing_left(), running(on(aws)) as found:
        for _ in range(3):
            found.train()
    check(found, undisturbed)


def test_more_calls_than_aws_takes(aws: Cloud, undisturbed: Undisturbed, caplog: pytest.LogCaptureFixture) -> None:
    """It throttles from the warm-up on; that fails nothing."""
    with nothing_left(), running(on(aws, workers=6, attempts=1)) as found:
        for _ in range(3):
            found.train()
        assert found.pipeline.counters()["throttled"] > 0
    check(found, undisturbed)
    assert "was throttled: none begins for" in caplog.text


class ServiceError(LambdaClientError):
    code = 500

    def __init__(self) -> None:
        super().__init__("ServiceException", "Try again later.")


class Trouble:
    """A function that now and then does its work and is not heard of, or dies, or is not begun. Seeded."""

    def __init__(self, sandboxes: list[Emulated], share: float) -> None:
        self._sandboxes, self._inner = sandboxes, Sandboxes(sandboxes)
        self._share, self._random, self._lock = share, random.Random(7), threading.Lock()
        self.suffered = dict.fromkeys(("throttled", "service", "killed", "died", "timed out", "cut off", "empty"), 0)

    def __call__(self, payload: bytes) -> Reply:
        kind = self._kind()
        if kind == "throttled":
            raise ThrottledError
        if kind == "service":
            raise ServiceError
        if kind == "killed":
            self._random.choice(self._sandboxes).kill_runtime()
        reply = self._inner(payload)
        if kind == "died":
            return Reply(b'{"errorType": "Runtime.ExitError", "errorMessage": "signal: killed"}', "Unhandled")
        if kind == "timed out":
            return Reply(b'{"errorMessage": "2026-07-01 8f5 Task timed out after 3.00 seconds"}', "Unhandled")
        if kind == "cut off":
            return Reply(reply.body[:-7], None)
        return Reply(b"", None) if kind == "empty" else reply

    def _kind(self) -> str | None:
        with self._lock:
            if self._random.random() >= self._share:
                return None
            least = min(self.suffered.values())
            kind = self._random.choice([kind for kind, count in self.suffered.items() if count == least])
            self.suffered[kind] += 1
            return kind


def test_whatever_aws_answers(aws: Cloud, sandboxes: list[Emulated], undisturbed: Undisturbed) -> None:
    with nothing_left(), running(on(aws)) as found:
        trouble = aws.answer = Trouble(sandboxes, share=0.3)
        while len(found.states) < EPOCHS:
            found.train()
        print(trouble.suffered, found.pipeline.counters())
        assert min(trouble.suffered.values()) >= 2
        assert found.pipeline.counters()["retries"] > 0
        assert found.pipeline.counters()["throttled"] >= trouble.suffered["throttled"] + trouble.suffered["service"]
        aws.answer = Sandboxes(sandboxes)
    check(found, undisturbed)


def test_no_key_is_logged(aws: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with running(on(aws)) as found:
        found.train()
        keys = found.backend._invoker._settings.keys
    # moto's server, which is AWS's side, writes down the URLs that it is asked for.
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name != "werkzeug")
    assert "calls at a time" in ours
    for secret in (keys.worker_secret.decode(), keys.token.hex(), "X-Amz-Signature", SECRET):
        assert secret not in ours
