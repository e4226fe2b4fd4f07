"""What a run does when something is lost: a table of who is killed, and at what.

    python benchmarks/losses.py                                   # all cells, both modes, about 20 minutes on two cores
    python benchmarks/losses.py --modes pipe --only driver        # some of them

Hosts are real processes (`pipeline.hosts=processes`). In the middle of epoch 2 of 5 one that stands at a gather, a stage,
the sending of rows, of gradients, an update or a checkpoint is killed by SIGKILL, or another one while it stands there. A
cell is good where the run comes to its end, synchronous training with the very bits of a run in which nothing was lost, and
leaves no process and no file. Beside each: how long it took from the loss to all servers being there again, and how much of
an epoch was run again.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from harness.command_line import parsed, parser_of, write_json
from harness.in_hosts import PHASES
from harness.lost_hosts import OTHERS, TARGETS, Outcome, lose


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--modes", choices=["pipe", "async"], nargs="+", default=["pipe", "async"])
    parser.add_argument("--only", choices=[*TARGETS, *OTHERS], nargs="+", default=[*TARGETS, *OTHERS])
    parser.add_argument("--phases", choices=PHASES, nargs="+", default=list(PHASES))
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parsed(parser, modes=["pipe"], only=["graph server"], phases=["gather"])
    logging.getLogger("dorylax").setLevel(logging.ERROR)
    found: list[dict[str, Any]] = []
    bad = 0
    for mode in arguments.modes:
        for target in arguments.only:
            if mode == "pipe" and target == "disk full at a checkpoint":
                continue  # whose checkpoints are the driver's
            for phase in arguments.phases if target in TARGETS else ["gather"]:
                outcome = lose(mode, target, phase)
                bad += not outcome.good
                found.append({"mode": mode, "target": target, "phase": phase, **outcome._asdict()})
                found[-1]["losses"] = [vars(loss) for loss in outcome.losses]
                print(f"{mode:<6}{target:<32}{phase:<12}{_said(outcome)}", flush=True)
    print(f"{len(found)} cells, {bad} bad")
    write_json(arguments.json, {"schema": 1, "cells": found})
    sys.exit(bool(bad))


def _said(outcome: Outcome) -> str:
    words = ["good" if outcome.good else "BAD"]
    whole = "all epochs" if outcome.finite else "NOT FINITE"
    words.append({True: "same bits", False: "OTHER BITS", None: whole}[outcome.same])
    for loss in outcome.losses:
        words.append(f"recovered in {loss.recovery_seconds:.1f} s, {1e3 * loss.wasted_seconds:.0f} ms run again")
    words.append(f"{outcome.seconds:+.1f} s in all")
    if outcome.left:
        words.append(f"left: {', '.join(outcome.left)}")
    return ", ".join(words)


if __name__ == "__main__":
    main()
