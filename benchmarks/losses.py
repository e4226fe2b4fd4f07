"""Does a run recover when something is lost? A table of victims, phases and outcomes.

    python benchmarks/losses.py                                   # all cells, both modes, about 40 minutes on two cores
    python benchmarks/losses.py --modes pipe --only driver        # some of them

Hosts are real processes (`pipeline.hosts=processes`), or actors on a Ray cluster of two nodes; tests/support/lost_hosts.py
has the victims. In the middle of epoch 2 of 5, while a host stands at a gather, a stage, the sending of rows, of gradients,
an update or a checkpoint, the victim is killed by SIGKILL; or it is stopped, and comes back. A cell is good if
the run comes to its end: synchronous training with the bits of an undisturbed run, asynchronous training with no row too
old and nothing counted twice. It must leave no process, socket or file; and a loss may cost no finished epoch, and at most
ten seconds in addition to the epoch under way (a node, as long as Ray takes to see that it is gone). Each cell also prints
the time until all servers are there again, and the part of an epoch that was run again.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.command_line import parsed, parser_of, write_json

# isort: split
from support.in_hosts import PHASES
from support.lost_hosts import MOST_SECONDS, NODES, ON_RAY, OTHERS, TARGETS, Outcome, lose
from support.ray_cluster import ray_nodes


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
    with contextlib.ExitStack() as around:
        nodes = around.enter_context(ray_nodes(NODES)) if {*arguments.only} & {*ON_RAY} else None
        for mode, target, phase in _cells(arguments):
            words = f"{mode:<6}{target:<32}{phase:<12}"
            outcome = lose(mode, target, phase, nodes if target in ON_RAY else None)
            slow = target not in ON_RAY and any(loss.recovery_seconds > MOST_SECONDS for loss in outcome.losses)
            bad += slow or not outcome.good
            found.append({"mode": mode, "target": target, "phase": phase, **outcome._asdict()})
            found[-1]["losses"] = [vars(loss) for loss in outcome.losses]
            print(f"{words}{_said(outcome, slow=slow)}", flush=True)
            write_json(arguments.json, {"schema": 1, "cells": found})
    print(f"{len(found)} cells, {bad} bad")
    sys.exit(int(bad > 0))


def _cells(arguments: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    for mode in arguments.modes:
        for target in arguments.only:
            if mode == "pipe" and target == "disk full at a checkpoint":
                continue  # whose checkpoints are the driver's
            for phase in arguments.phases if target in TARGETS else ["gather"]:
                yield mode, target, phase


def _said(outcome: Outcome, *, slow: bool) -> str:
    words = ["good" if outcome.good and not slow else "BAD"]
    words.append({True: "same bits", False: "OTHER BITS", None: "each gradient once"}[outcome.same])
    for loss in outcome.losses:
        words.append(f"recovered in {loss.recovery_seconds:.1f} s, {1e3 * loss.wasted_seconds:.0f} ms run again")
    words.append(f"{outcome.seconds:+.1f} s in all")
    return ", ".join([*words, *outcome.wrong])


if __name__ == "__main__":
    main()
