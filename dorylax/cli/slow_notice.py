"""A notice for commands that would otherwise print nothing for a long time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

_SECONDS = 10.0


@contextmanager
def says_when_slow(text: str, *, seconds: float = _SECONDS) -> Iterator[None]:
    """Print `text` to stderr, once, if the context takes longer than `seconds`."""
    timer = threading.Timer(seconds, click.echo, (text,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def compiling(model: str) -> str:
    """Return the notice for compiling a model to estimate its memory."""
    return (
        f"compiling the training step of {model} to see how much memory it takes: about a minute for a model with dozens of "
        "layers"
    )
