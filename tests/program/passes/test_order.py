"""What is on record after one more pass."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from dorylax.errors import InputError
from dorylax.program.passes.order import ORDER, next_passes


@dataclasses.dataclass(frozen=True)
class Recorded:
    """As much of a program as is looked at."""

    passes: tuple[str, ...]


def after(*passes: str) -> Any:
    return Recorded(passes)


@pytest.mark.parametrize(("before", "name"), list(itertools.product(ORDER, ORDER)))
def test_every_pair(before: str, name: str) -> None:
    if ORDER.index(before) < ORDER.index(name):
        assert next_passes(after(before), name) == (before, name)
        return
    with pytest.raises(
        InputError, match=f"pass {name} cannot follow {before}: passes apply once, in the order reorder, "
    ):
        next_passes(after(before), name)


def test_all_that_came_before_count() -> None:
    assert next_passes(after("prune", "hoist"), "cut") == ("prune", "hoist", "cut")
    with pytest.raises(InputError, match="pass fuse cannot follow cut"):
        next_passes(after("prune", "cut"), "fuse")
