"""GPUs of servers: what they can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dorylax.cost.errors import check_bounds


@final
@dataclass(frozen=True)
class Gpu:
    """A GPU, on which a server's tasks run one at a time.

    Attributes:
        memory: bytes.
        flops: floating-point operations per second of matrix products.
        memory_bandwidth: bytes per second that it reads along edges.
        pcie_bandwidth: bytes per second between it and the server's memory, each way: what messages bring and take.
        launch: seconds of each task that are not its arithmetic.

    Raises:
        ClusterError: a value out of range.
    """

    memory: float
    flops: float
    memory_bandwidth: float
    pcie_bandwidth: float
    launch: float

    def __post_init__(self) -> None:
        for key in ("memory", "flops", "memory_bandwidth", "pcie_bandwidth"):
            check_bounds(self, key, 0.0, above=True)
        check_bounds(self, "launch", 0.0)


V100 = Gpu(
    memory=16e9,  # NVIDIA's data sheet
    flops=15.7e12 / 3,  # assumption: a third of the peak of its data sheet, as of CPUs
    memory_bandwidth=75e9,  # along edges; fitted to the Dorylus paper (docs/simulation.md): a twelfth of its data sheet's
    pcie_bandwidth=12e9,  # assumption: three quarters of the 15.75 GB/s of PCIe 3.0 x16
    launch=20e-6,  # assumption: two kernels of 10 µs
)
"""NVIDIA's Tesla V100, 16 GB (SXM2), of Amazon's p3."""

K80 = Gpu(
    memory=12e9,  # of one of its two processors, NVIDIA's data sheet, as the next two
    flops=8.73e12 / 2 / 3,  # assumption: a third of the peak, as of V100
    memory_bandwidth=480e9 / 2 / 12,  # assumption: a twelfth of the bandwidth, as of V100
    pcie_bandwidth=12e9,  # assumption: as of V100
    launch=20e-6,  # assumption: likewise
)
"""One of the two processors of NVIDIA's Tesla K80, as Amazon's p2 has them."""
