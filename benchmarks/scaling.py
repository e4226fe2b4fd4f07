"""How an epoch's cost grows with the graph: seconds per edge of a GCN at 1, 10 and 100 million edges.

    python benchmarks/scaling.py                          # five minutes on two cores
    python benchmarks/scaling.py --edges 1_000_000_000    # 20 minutes, 13 GiB

The graphs are generated with the mean degree, features and classes of `reddit-small`, so that vertices and edges grow
together; the model is the 2-layer GCN of width 128, without dropout. Each size runs in a process of its own. After a warm-up
it trains for as many epochs as have about the edges of three of the largest. The figure is the median epoch's nanoseconds
per edge, and the largest of these over the smallest. Also: seconds of the generator, and the peak of memory.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from harness.child import in_child
from harness.command_line import parsed, parser_of, write_json
from harness.measure import GIB, peak_bytes

DEGREE, FEATURES, CLASSES, HIDDEN = 492.8, 602, 41, 128
MOST_EPOCHS = 60


def measure(edges: int, epochs: int) -> dict[str, Any]:
    """One size, in this process."""
    import optax
    from flax import nnx

    from dorylax.graph import datasets
    from dorylax.layers import GCN
    from dorylax.trainer import Trainer

    options = {"num_vertices": round(edges / DEGREE), "num_features": FEATURES, "num_classes": CLASSES}
    begin = time.perf_counter()
    data = datasets.load("communities", num_edges=edges, **options)
    generated = time.perf_counter() - begin
    model = GCN(FEATURES, HIDDEN, CLASSES, dropout=0.0, rngs=nnx.Rngs(0))
    trainer = Trainer(model, data, optimizer=optax.adam(0.01), epochs=epochs + 1, eval_every=epochs + 1)
    median = statistics.median(record.seconds for record in trainer.fit().history[1:])
    found = {"edges": edges, "epoch_seconds": median, "ns_per_edge": median / edges * 1e9}
    return found | {"generate_seconds": generated, "peak_bytes": peak_bytes()}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, edges=[50_000])
    rows = []
    for edges in arguments.edges:
        row = in_child(measure, edges, max(3, min(MOST_EPOCHS, 3 * max(arguments.edges) // edges)))
        rows.append(row)
        print(
            f"{edges:>13,} edges: {row['epoch_seconds']:8.4f} s, {row['ns_per_edge']:6.2f} ns per edge; generated in "
            f"{row['generate_seconds']:.1f} s, peak {row['peak_bytes'] / GIB:.1f} GiB",
            flush=True,
        )
    costs = [row["ns_per_edge"] for row in rows]
    print(f"largest over smallest: {max(costs) / min(costs):.2f}")
    write_json(arguments.json, {"schema": 2, "ratio": max(costs) / min(costs), "rows": rows})


if __name__ == "__main__":
    main()
