from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dorylax.cost.machines import WarmPool


def test_an_environment_is_used_again_until_it_has_waited_too_long():
    pool = WarmPool(keep_warm=10.0)
    assert pool.begin(0.0)
    pool.end(1.0)
    assert not pool.begin(11.0)
    pool.end(12.0)
    assert pool.begin(22.5)


def test_the_one_that_ran_last_is_used_first_so_that_others_end():
    pool = WarmPool(keep_warm=10.0)
    assert [pool.begin(0.0), pool.begin(0.0)] == [True, True]
    pool.end(1.0)
    pool.end(2.0)
    for k in range(3, 20):  # one at a time is enough
        assert not pool.begin(float(k))
        pool.end(float(k))
    assert not pool.begin(20.0)
    assert pool.begin(20.0)  # the other one has waited since 1


@given(calls=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 5)), max_size=30))
def test_there_are_as_many_as_ran_at_a_time(calls):
    """Where none waits too long, what starts cold is the largest number that ran at a time."""
    pool, now, events = WarmPool(keep_warm=1e9), 0.0, []
    for pause, seconds in calls:
        now += pause
        events += [(now, 1), (now + seconds, 0)]
    running = most = cold = 0
    for when, begins in sorted(events):
        if begins:
            cold += pool.begin(when)
            running += 1
            most = max(most, running)
        else:
            pool.end(when)
            running -= 1
    assert cold == most


def test_it_goes_on_from_what_was_saved():
    pool, other = WarmPool(10.0), WarmPool(10.0)
    for end in (1.0, 2.0):
        pool.end(end)
    other.restore(pool.state())
    assert [pool.begin(11.5), pool.begin(11.5)] == [other.begin(11.5), other.begin(11.5)] == [False, True]
