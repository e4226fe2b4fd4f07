"""Hosts under simulated faults: many seeds, their failures, and planted bugs that they must find.

    python benchmarks/simulation.py --seeds 10000                 # about an hour on two cores
    python benchmarks/simulation.py --seeds 1 --first 4711        # one seed again, event by event the same
    python benchmarks/simulation.py --bugs                        # the first seed that finds each bug put in on purpose

Hosts, their driver and the ledger are those of `pipeline.hosts=processes`; the network, the processes and the time are
simulated, in one process. A seed decides how a run trains and recovers, and its faults: messages that are lost, doubled,
late and overtake each other; hosts that are killed, with or without notice, that stop and come back, zombies that
continue after they were replaced; links that are cut, several together, restored one by one; full disks; a new driver. The
invariants are those of `tests/support/simulated_hosts/invariants.py`, and synchronous training must end with the bits of a
run in which nothing went wrong. Every seed is run twice, and all its events must be the same.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.command_line import parsed, parser_of, write_json

# isort: split
from support.simulated_hosts.bugs import BUGS
from support.simulated_hosts.faults import DRIVER
from support.simulated_hosts.trial import Outcome, run, warm


def _quiet() -> None:
    logging.getLogger("dorylax").setLevel(logging.CRITICAL)


def _twice(seed: int) -> tuple[Outcome, bool]:
    """What came of a seed, and whether it was the same when it was run again."""
    first = run(seed)
    return first, run(seed)[4:] == first[4:]


def outcomes(seeds: range, jobs: int) -> Iterator[tuple[Outcome, bool]]:
    """Of all seeds, in order."""
    if jobs == 1:
        yield from map(_twice, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _quiet) as pool:
        yield from pool.imap(_twice, seeds, chunksize=8)


def seeds(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs seeds, and prints those with which something does not hold."""
    begin = time.perf_counter()
    broken: list[int] = []
    count = differ = 0
    simulated = 0.0
    kinds, counts = Counter[str](), Counter[str]()
    for outcome, same in outcomes(range(arguments.first, arguments.first + arguments.seeds), arguments.jobs):
        kinds.update(f"{fault.kind}{' driver' * (fault.process == DRIVER)}" for fault in outcome.plan.faults)
        counts.update(outcome.counts._asdict() | {"messages": outcome.messages})
        count, simulated, differ = count + 1, simulated + outcome.seconds, differ + (not same)
        if not same:
            print(f"seed {outcome.seed} is not the same when it is run again", flush=True)
        if outcome.broken is not None:
            broken.append(outcome.seed)
            print(
                f"seed {outcome.seed}, {outcome.configuration}, {outcome.recovery}: {outcome.broken}\n    {outcome.plan}",
                flush=True,
            )
    hours = (time.perf_counter() - begin) / 3600
    print(
        f"{count} seeds, each run twice: {len(broken)} with something that does not hold, {differ} that differ; "
        f"{2 * count / hours:.0f} runs an hour, {2 * simulated / 3600 / hours:.1f} simulated hours an hour\n"
        f"    {', '.join(f'{number} × {kind}' for kind, number in sorted(kinds.items()))}; "
        f"{counts['losses']} losses gone on after, {counts['drivers'] - count} drivers lost, {counts['resumed']} of them "
        f"with a checkpoint; {counts['messages'] / max(1, count):.0f} messages a run",
        flush=True,
    )
    rates = {"faults": kinds, **counts, "runs_per_hour": 2 * count / hours}
    return {"seeds": count, "first": arguments.first, "broken": broken, "differ": differ} | rates


def bugs(arguments: argparse.Namespace) -> dict[str, Any]:
    """For each bug, the first seed that finds it."""
    found: dict[str, Any] = {}
    warm()  # before a bug is in
    for name, put_in in BUGS.items():
        found[name] = None
        for seed in range(arguments.first, arguments.first + arguments.most):
            with put_in():
                outcome = run(seed, gated=False, recovery="rerun")
                if outcome.broken is None:
                    continue
                same = run(seed, gated=False, recovery="rerun")[4:] == outcome[4:]
            found[name] = seed
            print(
                f"{name}: found by seed {seed}, {'replayed' if same else 'NOT THE SAME AGAIN'}: {outcome.broken}",
                flush=True,
            )
            break
        else:
            print(f"{name}: not found by {arguments.most} seeds", flush=True)
    numbers = [seed - arguments.first for seed in found.values() if seed is not None]
    print(
        f"{len(numbers)} of {len(BUGS)} bugs found, after {statistics.median(numbers or [0]):.0f} seeds in the median"
    )
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--bugs", action="store_true", help="put bugs in, one after the other, in place of that")
    parser.add_argument("--most", type=int, default=1000, help="seeds that are tried for a bug")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parsed(parser, seeds=3, jobs=1, most=3)
    _quiet()
    write_json(arguments.json, (bugs if arguments.bugs else seeds)(arguments))


if __name__ == "__main__":
    main()
