"""Calibrations that take seconds, and what one could have found."""

from __future__ import annotations

from dorylax.calibration.steps import Sizes, summary
from dorylax.cost.measured import Measured

TINY = Sizes(
    seconds=0.0,
    widths=(8, 41),
    rows_bytes=(2**12, 2**14),
    pass_bytes=2**14,
    mean_degree=4,
    products=((16, 8, 4),),
    copied_bytes=2**12,
    epochs=2,
    sent_bytes=2**10,
    sent_together=2,
    sent_seconds=0.0,
    asked=2,
)


REFERENCES = {
    "tensor": 3e-4,
    "call": 2e-3,
    "tasks": {
        "graph": 4e-4,
        "tensor": 1e-3,
        "call": 5e-3,
        "process graph": 6e-4,
        "process tensor": 2e-3,
        "message": 3e-3,
    },
}
"""`harness.one_machine.References` of that machine."""


def measured(**changed: object) -> Measured:
    """A machine of two cores, with round numbers."""

    def gather(width: int, rows_bytes: int, threads: int, speed: float):
        return summary("gather", [0.9 * speed, speed, 1.1 * speed], width=width, rows_bytes=rows_bytes, threads=threads)

    results = [
        gather(16, 1000, 2, 80e9),
        gather(128, 1000, 2, 90e9),
        gather(16, 9000, 2, 4e9),
        gather(100, 9000, 1, 5e9),
        gather(100, 9000, 2, 6e9),
        summary("product", [30e9] * 3, rows=100, inner=10, columns=10, threads=1),
        summary("product", [40e9] * 3, rows=100, inner=10, columns=10, threads=2),
        summary("product", [120e9] * 3, rows=300, inner=10, columns=10, threads=2),
        summary("elementwise", [5e9] * 3, threads=1),
        summary("stage", [8e9] * 3, threads=1),
        summary("memory", [20e9] * 3, threads=1),
        summary("task", [1e-4] * 3, part="inside"),
        summary("task", [2e-4] * 3, part="around"),
        summary("latency", [5e-5] * 3, transport="ipc"),
        summary("latency", [6e-5] * 3, transport="tcp"),
        summary("transfer", [2e9] * 3, transport="ipc"),
        summary("transfer", [1e9] * 3, transport="tcp"),
    ]
    facts = {
        "date": "2026-11-25",
        "dorylax": "1.2",
        "processor": "Ab: c",
        "cores": 2,
        "threads_per_core": 1,
        "others": 0.0,
    }
    return Measured(**{**facts, "results": tuple(results), **changed})  # type: ignore[arg-type]
