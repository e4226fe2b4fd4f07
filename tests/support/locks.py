"""A lock for what is installed, where it is not what dorylax's own lock is for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dorylax.serverless.deploy.image import context
from dorylax.serverless.deploy.image.contents import PACKAGED, lock_text, read_lock, requirements


@contextlib.contextmanager
def locked_here(folder: Path) -> Iterator[None]:
    """Image contexts can be made in here, with made-up hashes if need be: nothing is installed by them."""
    pins = requirements(lapack=True)
    with pytest.MonkeyPatch.context() as patch:
        if not set(pins) <= set(read_lock(PACKAGED)):
            file = folder / "wheels.txt"
            file.write_text(lock_text({pin: frozenset({f"{0:064x}"}) for pin in pins}))
            patch.setattr(context, "PACKAGED", file)
        yield
