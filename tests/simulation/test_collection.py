from __future__ import annotations

import gc

import pytest

from dorylax.simulation.run import rarely_collected


@pytest.fixture(autouse=True)
def as_before():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_garbage_is_searched_for_seldom_and_then_as_before():
    gc.set_threshold(700, 10, 10)
    with rarely_collected():
        assert gc.get_threshold()[0] >= 100_000
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


def test_a_simulation_that_fails_leaves_nothing_behind():
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), rarely_collected():
        1 / 0  # noqa: B018
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_who_has_switched_it_off_finds_it_off():
    gc.set_threshold(0)
    with rarely_collected():
        assert gc.get_threshold()[0] == 0
        assert gc.get_freeze_count() == 0
