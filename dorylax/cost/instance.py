"""Servers for rent and their GPUs: speeds, memory and prices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, final

from pydantic import Field

from dorylax.cost.fields import NotNegative, part
from dorylax.cost.variation import Variation
from dorylax.settings.section import Count, Positive

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
# Assumption: the second hyper-thread of a core brings a quarter more (Intel says up to 30 %), so that one alone does
# 2 / 1.25 of the work of each of two.
_LONE_THREAD = 1.6


@final
@part
class Gpu:
    """A GPU, on which a server's tasks run one at a time.

    Attributes:
        memory: Bytes.
        flops: Floating-point operations per second of matrix products.
        memory_bandwidth: Bytes per second read along edges.
        pcie_bandwidth: Bytes per second of messages between it and the server's memory, each way.
        launch: Seconds of each task that are not its arithmetic.

    Raises:
        ConfigError: A value is out of range.
    """

    memory: Positive
    flops: Positive
    memory_bandwidth: Positive
    pcie_bandwidth: Positive
    launch: NotNegative


V100 = Gpu(
    memory=16e9,  # NVIDIA's data sheet
    flops=15.7e12 / 3,  # assumption: a third of the peak of its data sheet, as of CPUs
    memory_bandwidth=75e9,  # along edges; fitted to the Dorylus paper (docs/log/2026-11.md): a twelfth of its data sheet's
    pcie_bandwidth=12e9,  # assumption: three quarters of the 15.75 GB/s of PCIe 3.0 x16
    launch=20e-6,  # assumption: two kernels of 10 µs
)
"""NVIDIA's Tesla V100, 16 GB (SXM2), of Amazon's p3."""

K80 = Gpu(
    memory=12e9,  # of one of its two processors, NVIDIA's data sheet, as the next two
    flops=8.73e12 / 2 / 3,  # assumption: a third of the peak, as of V100
    memory_bandwidth=480e9 / 2 / 12,  # assumption: a twelfth of the bandwidth, as of V100
    pcie_bandwidth=12e9,  # assumption: as of V100
    launch=20e-6,  # assumption: as of V100
)
"""One of the two processors of NVIDIA's Tesla K80, as Amazon's p2 has them."""


@final
@part
class Instance:
    """A type of server.

    With `gpu` all tasks run there, one at a time, and its speeds hold in place of those of threads.

    Attributes:
        name: The provider's name.
        threads: Virtual CPUs, each of which does one task at a time.
        flops: Floating-point operations per second of one thread while all are busy.
        memory_bandwidth: Bytes per second that one thread reads along edges while all are busy.
        network_bandwidth: Bytes per second of the server, each way.
        overhead: Seconds of each task that are not its arithmetic.
        price: US dollars per hour.
        variation: Spread of the durations of its tasks and messages.
        threads_per_core: With contention: number of threads that share a core, 1 or 2.
        lone_thread: With contention: speed of a thread alone on its core, over that of one of two (≥ 1).
        total_memory_bandwidth: With contention: most bytes per second of all threads together; 0: no limit.
        gpu: Its GPU, or None.
        memory: Bytes of main memory; 0: unknown.
        row_latency: Least seconds for each row that a thread reads along an edge; 0: only its bytes count.

    Raises:
        ConfigError: A value is out of range.
    """

    name: str
    threads: Count
    flops: Positive
    memory_bandwidth: Positive
    network_bandwidth: Positive
    overhead: Positive
    price: NotNegative
    variation: Variation
    threads_per_core: Annotated[int, Field(ge=1, le=2)] = 1
    lone_thread: Annotated[float, Field(ge=1)] = 1.0
    total_memory_bandwidth: NotNegative = 0.0
    gpu: Gpu | None = None
    memory: NotNegative = 0.0
    row_latency: NotNegative = 0.0

    @property
    def tasks(self) -> int:
        """Number of tasks that it does at a time."""
        return self.threads if self.gpu is None else 1

    def lift(self, busy: int) -> float:
        """Speed of each of so many busy threads, relative to the speed while all are busy, on average.

        Threads spread over cores; those that share a core have the speed of full load.
        """
        if self.threads_per_core == 1:
            return 1.0
        sharing = min(busy, max(0, 2 * busy - self.threads))
        return self.lone_thread - (self.lone_thread - 1) * (sharing / busy)


def _ec2(
    name: str,
    threads: int,
    gigabits: float,
    price: float,
    gibibytes: int,
    *,
    memory: float,
    hyper_threads: bool = True,
    gpu: Gpu | None = None,
) -> Instance:
    """An instance of Amazon with so many GiB; `memory` is the memory bandwidth of a virtual CPU, in bytes per second."""
    return Instance(
        name,
        threads,
        _FLOPS,
        _GATHERED,
        gigabits * _GIGABIT,
        _OVERHEAD,
        price,
        variation=_SERVER_VARIATION,
        threads_per_core=2 if hyper_threads else 1,
        lone_thread=_LONE_THREAD if hyper_threads else 1.0,
        total_memory_bandwidth=threads * memory,
        gpu=gpu,
        memory=float(gibibytes * 2**30),
    )


# Bytes per second of a socket's memory, over its virtual CPUs (data sheets of Intel and Amazon). Assumption: a server gets
# its share.
_SKYLAKE_36 = 3.55e9  # c5, c5n: 6 channels DDR4-2666, 36 virtual CPUs
_SKYLAKE_48 = 2.66e9  # r5: 6 channels DDR4-2666, 48
_BROADWELL = 2.4e9  # p2, p3: 4 channels DDR4-2400, 32
_SAPPHIRE_RAPIDS = 3.2e9  # c7i: 8 channels DDR5-4800, 96
_GRAVITON_3 = 4.8e9  # c7g: 8 channels DDR5-4800, 64, which are cores


# Amazon EC2, us-east-1, on demand, July 2026; the network's baseline, not its bursts. The Dorylus paper (June 2021) lists
# these prices of c5 and c5n.
_TYPES = (
    _ec2("c5.xlarge", 4, 1.25, 0.17, 8, memory=_SKYLAKE_36),  # network: assumption, half of a c5.2xlarge's
    _ec2("c5.2xlarge", 8, 2.5, 0.34, 16, memory=_SKYLAKE_36),
    _ec2("c5n.large", 2, 3.0, 0.108, 5, memory=_SKYLAKE_36),
    _ec2("c5n.2xlarge", 8, 10.0, 0.432, 21, memory=_SKYLAKE_36),
    _ec2("c5n.4xlarge", 16, 15.0, 0.864, 42, memory=_SKYLAKE_36),
    _ec2("c7i.2xlarge", 8, 3.1, 0.357, 16, memory=_SAPPHIRE_RAPIDS),
    _ec2("c7g.2xlarge", 8, 3.75, 0.29, 16, memory=_GRAVITON_3, hyper_threads=False),
    _ec2("r5.xlarge", 4, 1.25, 0.252, 32, memory=_SKYLAKE_48),
    _ec2("r5.2xlarge", 8, 2.5, 0.504, 64, memory=_SKYLAKE_48),
    _ec2("p2.xlarge", 4, 1.25, 0.90, 61, memory=_BROADWELL, gpu=K80),  # network: assumption, as of other xlarge
    _ec2("p3.2xlarge", 8, 2.5, 3.06, 61, memory=_BROADWELL, gpu=V100),
)
INSTANCES: Mapping[str, Instance] = MappingProxyType({one.name: one for one in _TYPES})
"""Known types of server by name. All have the same assumed speed per thread; network and price are Amazon's."""
