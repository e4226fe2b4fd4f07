"""The file of a measured machine: a cluster of such machines, and the measurements (docs/clock.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dorylax.cost.measured import KINDS, Measured

WIDTH = 128
"""Width of the gathered rows that determine `memory_bandwidth`, as for the known servers."""

_HEAD = """\
# Servers like the machine that `dorylax calibrate` has measured. It is a cluster for `pipeline.cluster`; functions, which
# nobody has measured, are those of the default cluster.
"""


def cluster_of(measured: Measured, name: str, price: float) -> dict[str, Any]:
    """Return a cluster of such machines at a price in US dollars per hour, as its file has it."""
    server = _server(measured, price)
    return {
        "name": name,
        "graph_server": server,
        "parameter_server": server,
        "latency": measured.at("latency", transport="ipc").median,
        "prices_as_of": measured.date[: len("YYYY-MM")],
        "contention": True,
        "measured": measured.to_dict(),
    }


def to_text(cluster: Mapping[str, Any]) -> str:
    """The file of a cluster that `cluster_of` describes; numbers have four digits."""
    return _HEAD + "".join(f"{line}\n" for line in _lines(cluster, ""))


def _server(measured: Measured, price: float) -> dict[str, Any]:
    """Speeds are those of a thread while all others compute, too; `lone_thread` and the rest are those of one alone."""
    threads, per_core = measured.cores, min(measured.threads_per_core, 2)
    flops = _products(measured, threads) / threads
    alone = [one for one in measured.of("product") if one.point["threads"] == 1]  # some systems cannot measure that
    lone_thread = max(1.0, _products(measured, 1) / flops) if alone else 1.0
    return {
        "name": "this-machine",
        "threads": threads,
        "flops": flops,
        # One thread's own bandwidth: all together are limited by the total alone.
        "memory_bandwidth": _gather(measured, 1) / (lone_thread if per_core == 2 else 1.0),
        "network_bandwidth": measured.at("transfer", transport="ipc").median,
        "overhead": sum(measured.at("task", part=part).median for part in ("inside", "around")),
        "price": price,
        "total_memory_bandwidth": _gather(measured, threads),
        "threads_per_core": per_core,
        "lone_thread": lone_thread,
    }


def _gather(measured: Measured, threads: int) -> float:
    """Bandwidth of rows beyond all caches, of the nearest width."""
    found = [one for one in measured.of("gather") if one.point["threads"] == threads]
    return min(found, key=lambda one: (-int(one.point["rows_bytes"]), abs(int(one.point["width"]) - WIDTH))).median


def _products(measured: Measured, threads: int) -> float:
    """Speed over all products measured with so many threads, together."""
    found = [one for one in measured.of("product") if one.point["threads"] == threads]
    flops = [2.0 * math.prod(int(one.point[size]) for size in ("rows", "inner", "columns")) for one in found]
    return sum(flops) / sum(amount / one.median for amount, one in zip(flops, found, strict=True))


def _lines(section: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:  # {KINDS[key].unit}; {KINDS[key].summary}"
            for entry in value:
                yield f"{indent}  - {{{', '.join(f'{name}: {_scalar(one)}' for name, one in entry.items())}}}"
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
