"""What is shown of Ray's errors: one line of bounded length, and of what an actor has raised not the traceback."""

from __future__ import annotations

import pytest

from dorylax.ray_cluster.errors import cause_of


class OfActorError(Exception):
    """As Ray's, whose text is a traceback."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("ray::Actor.ask()\n  File …")
        self.cause = cause


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("the node\n\tis lost"), "the node is lost"),
        (RuntimeError(), "RuntimeError"),
        (OfActorError(ValueError("no\nsuch row")), "ValueError: no such row"),
        (RuntimeError("x" * 500), f"{'x' * 397}..."),
    ],
)
def test_it_is_one_line(error: Exception, text: str) -> None:
    assert cause_of(error) == text
