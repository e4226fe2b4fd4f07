"""The steps of an interval, a file for each kind; `base.RunStep` is the contract."""

from dorylax.pipeline.steps import driver, gather, push, stage, total
from dorylax.pipeline.steps.base import RunStep

RUN: dict[str, RunStep] = {
    "stage": stage.run,
    "gather": gather.run,
    "push": push.run,
    "driver": driver.run,
    "sum": total.run,
}
"""By `Step.kind`."""

__all__ = ["RUN", "RunStep"]
