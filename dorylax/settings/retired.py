"""Settings of earlier versions: the error that names their replacement, and old runs in this version's terms."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

RETIRED: Mapping[str, str] = MappingProxyType(
    {
        "pipeline.oscillation_limit": "pipeline.stability_gate takes its place: leave it out, or give "
        "pipeline.stability_gate=false where the limit was 1",
        "pipeline.delay_scaling": "pipeline.stability_gate keeps gradients new while curvature is high; leave it out",
    }
)
"""What to do instead, by key."""


def upgraded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings, in sections, as this version would have written them.

    A run that watched for oscillation continues with the stability gate, closed at first. A run whose steps were scaled by
    their delay keeps that setting, and is refused. Others continue as they were.
    """
    pipeline = settings.get("pipeline")
    if not isinstance(pipeline, Mapping) or "oscillation_limit" not in pipeline:
        return dict(settings)
    options = {"stability_gate": pipeline["oscillation_limit"] != 1, **pipeline}
    del options["oscillation_limit"]
    if options.get("delay_scaling", 0) is None:
        del options["delay_scaling"]
    return {**settings, "pipeline": options}
