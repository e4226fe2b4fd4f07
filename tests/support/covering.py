"""Covering arrays: few cases in which every pair of values of two factors meets (pairwise testing)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Cases such that for any two factors every pair of values is in one of them; greedy and deterministic."""
    names = list(factors)
    levels = [len(factors[name]) for name in names]
    missing = {
        (i, a, j, b)
        for i, j in itertools.combinations(range(len(names)), 2)
        for a in range(levels[i])
        for b in range(levels[j])
    }
    random, cases = Random(0), []
    while missing:
        i, a, j, b = min(missing)
        case: dict[int, int] = {i: a, j: b}
        for k in range(len(names)):
            if k not in case:
                chance = [random.random() for _ in range(levels[k])]  # decides where nothing is to gain
                case[k] = max(range(levels[k]), key=lambda level: (_gain(missing, case, k, level), chance[level]))
        cases.append({names[k]: factors[names[k]][case[k]] for k in range(len(names))})
        missing -= {(i, case[i], j, case[j]) for i, j in itertools.combinations(range(len(names)), 2)}
    return cases


def _gain(missing: set[tuple[int, int, int, int]], case: Mapping[int, int], k: int, level: int) -> int:
    pairs = ((k, level, i, a) if k < i else (i, a, k, level) for i, a in case.items())
    return sum(pair in missing for pair in pairs)
