"""Servers for rent: what they can do and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from dorylax.cost.errors import check_bounds
from dorylax.cost.variation import Variation

_GIGABIT = 1e9 / 8  # bytes

# Assumption: a third of the peak of half a 3 GHz AVX-512 core (a virtual CPU is a hyperthread): 3e9 · 64 / 2 / 3, rounded.
_FLOPS = 30e9
# Assumption: the native gather reads 10.7 GB/s on two cores at 2.5 GHz (measured, width 128, float32), and a virtual CPU is
# half a core.
_GATHERED = 2.7e9
# Assumption: the bound on the pipeline's own overhead per task.
_OVERHEAD = 200e-6
# Assumption: rented servers have neighbours, but do their work in about the same time.
_SERVER_VARIATION = Variation(sigma=0.05, straggler_probability=0.0, straggler_factor=1.0)


@final
@dataclass(frozen=True)
class Instance:
    """A type of server.

    Attributes:
        name: what its provider calls it.
        threads: virtual CPUs, each of which does one task at a time.
        flops: floating-point operations per second of one thread.
        memory_bandwidth: bytes per second that one thread reads along edges.
        network_bandwidth: bytes per second of the server, each way.
        overhead: seconds of each task that are not its arithmetic.
        price: US dollars per hour.
        variation: how the durations of its tasks and messages differ.

    Raises:
        ClusterError: a value out of range.
    """

    name: str
    threads: int
    flops: float
    memory_bandwidth: float
    network_bandwidth: float
    overhead: float
    price: float
    variation: Variation

    def __post_init__(self) -> None:
        check_bounds(self, "threads", 1.0)
        for key in ("flops", "memory_bandwidth", "network_bandwidth", "overhead"):
            check_bounds(self, key, 0.0, above=True)
        check_bounds(self, "price", 0.0)


def _ec2(name: str, threads: int, gigabits: float, price: float) -> Instance:
    return Instance(
        name, threads, _FLOPS, _GATHERED, gigabits * _GIGABIT, _OVERHEAD, price, variation=_SERVER_VARIATION
    )


# Amazon EC2, us-east-1, on demand, July 2026; the network's baseline, not its bursts. The Dorylus paper (June 2021) has
# the same prices of c5 and c5n.
INSTANCES: Mapping[str, Instance] = MappingProxyType(
    {
        instance.name: instance
        for instance in (
            _ec2("c5.xlarge", 4, 1.25, 0.17),  # network: assumption, half of a c5.2xlarge's
            _ec2("c5.2xlarge", 8, 2.5, 0.34),
            _ec2("c5n.2xlarge", 8, 10.0, 0.432),
            _ec2("c5n.4xlarge", 16, 15.0, 0.864),
            _ec2("c7i.2xlarge", 8, 3.1, 0.357),
            _ec2("c7g.2xlarge", 8, 3.75, 0.29),
            _ec2("r5.2xlarge", 8, 2.5, 0.504),
        )
    }
)
"""Known types of server by name. All have the same assumed speed per thread; network and price are Amazon's."""
