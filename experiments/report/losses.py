"""What runs have lost, and what that has cost: servers in processes of their own that died or could not be reached."""

from __future__ import annotations

from dorylax.experiments.analysis import Group
from dorylax.experiments.report.tables import TextTable
from dorylax.observers.progress import duration

_CAUSES = 8
"""That are written out."""


def losses_table(group: Group) -> TextTable | None:
    """A row for each loss; None where nothing was lost."""
    rows, causes = [], []
    for variant in group.variants:
        for run in variant.runs:
            for loss in (run.summary.get("pipeline") or {}).get("losses") or ():
                rows.append(
                    [
                        f"{variant.name}, seed {run.seed}: {', '.join(loss['servers'])}",
                        str(loss["epoch"]),
                        duration(loss["wasted_seconds"]) if loss["repeats"] else "–",
                        duration(loss["recovery_seconds"]),
                    ]
                )
                causes += loss["causes"]
    if not rows:
        return None
    shown = "; ".join(dict.fromkeys(causes[:_CAUSES]))
    more = f"; and {len(causes) - _CAUSES} more" if len(causes) > _CAUSES else ""
    note = (
        "Servers that were lost while a run went on, and replaced. Epoch: the first that was trained afterwards. Run again: "
        "for how long it had been under way, which is what the loss has cost besides the time until all servers were there "
        f"again. Why: {shown}{more}."
    )
    return TextTable(["servers", "epoch", "run again", "recovered in"], rows, note)
