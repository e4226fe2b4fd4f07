"""A notice for commands that would otherwise print nothing for a long time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

_SECONDS = 10.0


@contextmanager
def compiling(model: str) -> Iterator[None]:
    """Print a notice to stderr if the context, which compiles a model to estimate its memory, takes longer than 10 s."""
    text = (
        f"compiling the training step of {model} to see how much memory it takes: about a minute for a model with dozens of "
        "layers"
    )
    timer = threading.Timer(_SECONDS, click.echo, (text,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
