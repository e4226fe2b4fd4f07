from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.trace import LIMIT, Sampling


def traced(sampling: Sampling, epochs: int, size: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Which epochs of a run are, each of which takes so many bytes; and what was told of them."""
    found, told, total = [], [], 0
    for epoch in range(epochs):
        if not sampling.wants(epoch):
            continue
        if not sampling.takes(total + size):
            break
        total += size
        found.append(epoch)
        told.append((epoch + 1, total))
        sampling.wrote(*told[-1])
    return found, told


def test_a_run_of_usual_length_is_traced_whole() -> None:
    """300 epochs at 4 servers of 8 intervals take about 0.1 MB each."""
    assert traced(Sampling(), 300, 110_000)[0] == list(range(300))


def test_later_there_are_stretches_and_gaps_as_long_as_all_before() -> None:
    found, told = traced(Sampling(6400), 100_000, 100)
    assert found[:20] == [*range(16), 32, 33, 68, 69]
    assert all(epoch + 1 in found or epoch - 1 in found for epoch in found)
    assert found[-1] > 50_000
    assert told[-1][1] <= 6400


def test_an_epoch_that_alone_is_too_large_is_the_last() -> None:
    sampling = Sampling(1000)
    sampling.wrote(1, 100)
    assert sampling.wants(1)
    assert not sampling.takes(1001)
    assert not any(sampling.wants(epoch) for epoch in range(1, 99))


@given(st.integers(64, 10_000), st.lists(st.tuples(st.integers(1, 3000), st.booleans()), max_size=300))
def test_it_is_never_larger_however_large_epochs_are_and_often_it_is_gone_on_with(
    limit: int, epochs: list[tuple[int, bool]]
) -> None:
    told = [(0, 0)]
    sampling = Sampling(limit)
    for epoch, (size, resumed) in enumerate(epochs):
        sampling = replayed(limit, told) if resumed else sampling
        total = told[-1][1] + size
        if sampling.wants(epoch) and sampling.takes(total):
            told.append((epoch + 1, total))
            sampling.wrote(*told[-1])
    assert told[-1][1] <= limit


@given(st.integers(64, 10_000), st.integers(1, 300), st.integers(0, 300))
def test_it_goes_on_as_if_it_had_never_stopped(limit: int, size: int, stop: int) -> None:
    sampling = Sampling(limit)
    _, told = traced(sampling, stop, min(size, limit))
    resumed = replayed(limit, told)
    later = range(stop, stop + 300)
    assert [resumed.wants(epoch) for epoch in later] == [sampling.wants(epoch) for epoch in later]


def replayed(limit: int, told: list[tuple[int, int]]) -> Sampling:
    sampling = Sampling(limit)
    for epochs, size in told:
        sampling.wrote(epochs, size)
    return sampling


def test_the_setting_says_how_large_it_is() -> None:
    assert f"in {LIMIT // 2**20} MiB at most" in str(PipelineConfig.model_fields["trace"].description)
