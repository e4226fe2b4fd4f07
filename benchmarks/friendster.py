"""How long it takes to simulate a run on a graph that fits nowhere, and how much memory: Friendster on 32 servers.

    python benchmarks/friendster.py                              # 10 epochs on functions, as in the paper's table 4
    python benchmarks/friendster.py --epochs 3 --backend cpu
    python benchmarks/friendster.py --row gat-amazon             # another row of tables 3 and 4

65.6 million vertices, 3.6 billion edges, 32 servers with 50 functions each, with contention, in one process. Seconds are
those of this machine; the simulated ones are printed beside them in all digits, since making a simulation faster must not
change what it says.
"""

from __future__ import annotations

import time
from pathlib import Path

from dorylax.simulation.paper import TABLES_3_4
from dorylax.simulation.run import simulate
from dorylax.simulation.scenario import GraphSizes, Scenario
from harness.command_line import parsed, parser_of, write_json
from harness.measure import peak_bytes

_TINY = Scenario.of(
    "tiny", {"pipeline.servers": 2, "pipeline.intervals": 2}, graph=GraphSizes(1000, 10_000, features=8, classes=4)
)


def main() -> None:
    parser = parser_of(__doc__)
    rows = {row.name: row.scenario() for row in TABLES_3_4} | {_TINY.name: _TINY}
    parser.add_argument("--row", choices=sorted(rows), default="gcn-friendster")
    parser.add_argument("--backend", choices=["functions", "cpu", "gpu"], default="functions")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, row="tiny", epochs=2)
    begin = last = time.perf_counter()
    seconds: list[float] = []

    def on_epoch(_: int) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
        print(f"epoch {len(seconds) - 1}: {seconds[-1]:.1f} s", flush=True)

    found = simulate(rows[arguments.row].on(arguments.backend), epochs=arguments.epochs, on_epoch=on_epoch)
    total, peak = time.perf_counter() - begin, peak_bytes()
    tasks = sum(task.number for task in found.tasks)
    print(
        f"{found.name} on {found.backend}: {len(seconds)} epochs and what comes before them in {total:.1f} s, "
        f"{1e6 * total / tasks:.0f} µs for each of {tasks:,} tasks and messages; peak memory {peak / 2**30:.2f} GiB"
    )
    print(f"simulated seconds of epochs: {', '.join(map(repr, found.epochs))}")
    write_json(
        arguments.json,
        {"schema": 1, "row": found.name, "backend": found.backend, "epoch_seconds": seconds, "total_seconds": total}
        | {"tasks": tasks, "peak_bytes": peak, "simulated": found.to_dict()},
    )


if __name__ == "__main__":
    main()
