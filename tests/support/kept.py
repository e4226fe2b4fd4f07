"""What must hold of a run that has lost something, as its files tell it."""

from __future__ import annotations

import json
from collections.abc import Container
from itertools import zip_longest
from pathlib import Path

from dorylax.store.servers import GraphServerMetrics, read

_SERVERS = "servers.jsonl"
_COUNTED = ("pulls", "pushes", "updates", "tensor_tasks")


def finished(folder: Path) -> int:
    """How many epochs a run in a folder has finished, as far as it has written them down."""
    file = folder / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def broken(
    folder: Path, wanted: list[dict[str, int]], epochs: int, staleness: int, *, untold: Container[int] = ()
) -> list[str]:
    """What does not hold of a run.

    No row was read that was more than S + 1 epochs old; every interval has pulled weights, and pushed each part of its
    gradient, once in every epoch; there is one update an epoch, and the last version has all of them.

    Args:
        folder: of the run.
        wanted: what was `counted` of one that has lost nothing.
        epochs: that were to be trained.
        staleness: S.
        untold: epochs that had ended when something was lost, but of which nothing was written down: what was counted of
            them went with the servers.
    """
    wrong = []
    for one in read(folder / _SERVERS):
        if isinstance(one, GraphServerMetrics) and one.rows_by_lag:
            oldest = max(map(int, one.rows_by_lag))
            if oldest > staleness + 1:
                wrong.append(f"graph server {one.server} read rows {oldest} epochs old in epoch {one.epoch}")
    for epoch, (one, other) in enumerate(zip_longest(counted(folder), wanted)):
        if one != other and epoch not in untold:
            wrong.append(f"in epoch {epoch} {one}, not {other}")
    record = json.loads((folder / "checkpoints" / f"epoch-{epochs:08}" / "manifest.json").read_text("utf-8"))
    version = record["record"]["pipeline"]["version"]
    if version != epochs:
        wrong.append(f"version {version} after {epochs} epochs")
    return wrong


def counted(folder: Path) -> list[dict[str, int]]:
    """By epoch, what all servers together have done; who of them has done what may differ."""
    found: dict[int, dict[str, int]] = {}
    for one in read(folder / _SERVERS):
        of_epoch = found.setdefault(one.epoch, {})
        for name in _COUNTED:
            of_epoch[name] = of_epoch.get(name, 0) + getattr(one, name, 0)
        if isinstance(one, GraphServerMetrics):
            of_epoch["rows"] = of_epoch.get("rows", 0) + sum(one.rows_by_lag.values())
    return [found[epoch] for epoch in sorted(found)]
