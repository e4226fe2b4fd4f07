"""The limit of open files is raised as far as it may be."""

from __future__ import annotations

import resource

import pytest

from dorylax.serverless.data.descriptors import raise_limit


@pytest.mark.parametrize(
    ("soft", "hard", "found"),
    [
        (1024, 4096, 4096),
        (1024, 2**30, 65_536),
        (1024, resource.RLIM_INFINITY, 65_536),
        (4096, 4096, 4096),
        (100_000, 200_000, 100_000),  # never lowered
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 65_536),
    ],
)
def test_the_soft_limit_follows_the_hard_one(monkeypatch, soft, hard, found):
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    assert raise_limit() == found
    assert limits[-1][1] == hard
    assert len(limits) == (1 if soft in (found, resource.RLIM_INFINITY) else 2)
    assert raise_limit() == found


@pytest.mark.parametrize("error", [ValueError("current limit exceeds maximum limit"), OSError(22, "Invalid argument")])
def test_a_system_that_refuses_leaves_it_as_it_is(monkeypatch, error):
    def refuse(which: int, pair: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 256
