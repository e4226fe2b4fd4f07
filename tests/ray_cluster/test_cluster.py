"""What is said of an actor that has failed: its own error, in a line."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.ray_cluster import RayCluster

from dorylax.ray_cluster.cluster import cause_of
from dorylax.ray_cluster.connection import connected

pytestmark = pytest.mark.timeout(120)


class OfTaskError(Exception):
    """As Ray's `RayTaskError`: its text is a traceback, its cause what was raised."""

    cause = ModuleNotFoundError("No module named 'mine'")


ADVICE = "Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) …"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OfTaskError("\x1b[36mray::Host.begin()\x1b[39m (pid=7)\n  File …"),
            "ModuleNotFoundError: No module named 'mine'",
        ),
        (
            RuntimeError(
                "The actor died because of an error raised in its creation task, \x1b[36mray::A.__init__()\x1b[39m\n"
                '  File "a.py", line 2, in __init__\n    raise ValueError(…)\nValueError: of\ntwo lines'
            ),
            "ValueError: of two lines",
        ),
        (
            RuntimeError(
                f"The actor died unexpectedly.\n\tpid: 7\nThe actor is dead because its node has died. {ADVICE}"
            ),
            "its node has died.",
        ),
        (
            RuntimeError(
                "The actor died unexpectedly before finishing this task.\n\tclass_name: Actor\n\tip: 127.0.0.1\n"
                "The actor died because its node has died. Node Id: 15\n\tthe node was terminated unexpectedly"
            ),
            "its node has died. Node Id: 15 the node was terminated unexpectedly",
        ),
        (
            RuntimeError(
                "The actor 9f is unavailable: The actor is temporarily unavailable: RpcError: RPC error: Socket closed "
                "rpc_code: 14. The task may or may not have been executed on the actor."
            ),
            "its node cannot be reached any more: RpcError: RPC error: Socket closed rpc_code: 14.",
        ),
        (RuntimeError("The actor is dead because it was killed by `ray.kill`."), "it was killed by `ray.kill`."),
        (
            RuntimeError("Failed.\n[Node 1] Traceback (most recent call last):\n  File …\nOSError: full\n"),
            "OSError: full",
        ),
        (RuntimeError("some\n  words"), "some words"),
        (RuntimeError(), "RuntimeError"),
        (RuntimeError("x" * 500), "x" * 397 + "..."),
    ],
)
def test_a_line(error: Exception, text: str) -> None:
    assert cause_of(error) == text


def test_of_real_actors(ray_cluster: RayCluster) -> None:
    with connected(ray_cluster.config()) as ray:

        @ray.remote(num_cpus=0)
        class Actor:
            def __init__(self, fails: bool = False) -> None:
                if fails:
                    raise ValueError("of\ntwo lines")

            def fail(self) -> None:
                raise LookupError("no such row")

            def end(self) -> None:
                os._exit(3)

        def said(reference: Any) -> str:
            with pytest.raises(ray.exceptions.RayError) as caught:
                ray.get(reference, timeout=60)
            return cause_of(caught.value)

        assert said(Actor.remote().fail.remote()) == "LookupError: no such row"
        assert said(Actor.remote(fails=True).fail.remote()) == "ValueError: of two lines"
        assert said(Actor.remote().end.remote()).startswith("its worker process has died.")
