"""How an epoch's cost grows with the graph: seconds per edge of a GCN at 1, 10 and 100 million edges.

    python benchmarks/scaling.py --out scaling           # five minutes on two cores

The graphs are generated with the mean degree, features and classes of `reddit-small`, so that vertices and edges grow
together; the model is the 2-layer GCN of width 128, without dropout. Each size runs in a process of its own; after a warm-up
it trains for as many epochs as have about the edges of three of the largest. The figure is the median epoch's nanoseconds
per edge, and the largest of these over the smallest.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

from harness.child import in_child
from harness.command_line import parsed, parser_of, write_json

DEGREE, FEATURES, CLASSES, HIDDEN = 492.8, 602, 41, 128
MOST_EPOCHS = 60


def measure(edges: int, epochs: int) -> dict[str, Any]:
    """One size, in this process."""
    import optax
    from flax import nnx

    from dorylax.graph import datasets
    from dorylax.layers import GCN
    from dorylax.trainer import Trainer

    num_vertices = round(edges / DEGREE)
    options = {"num_features": FEATURES, "num_classes": CLASSES}
    data = datasets.load("communities", num_vertices=num_vertices, num_edges=edges, **options)
    model = GCN(FEATURES, HIDDEN, CLASSES, dropout=0.0, rngs=nnx.Rngs(0))
    trainer = Trainer(model, data, optimizer=optax.adam(0.01), epochs=epochs + 1, eval_every=epochs + 1)
    seconds = [record.seconds for record in trainer.fit().history[1:]]
    median = statistics.median(seconds)
    return {"edges": edges, "vertices": num_vertices, "epoch_seconds": median, "ns_per_edge": median / edges * 1e9}


def plot(path: Path, rows: list[dict[str, Any]]) -> None:
    """Nanoseconds per edge over edges."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.2))
    axis.plot([row["edges"] for row in rows], [row["ns_per_edge"] for row in rows], "o-", color="#c0392b", linewidth=2)
    for row in rows:
        label = f"{row['epoch_seconds']:.3g} s"
        axis.annotate(label, (row["edges"], row["ns_per_edge"]), (0, 8), textcoords="offset points", ha="center")
    axis.set_xscale("log")
    axis.set_ylim(0, 1.35 * max(row["ns_per_edge"] for row in rows))
    axis.set_xlabel("edges")
    axis.set_ylabel("nanoseconds per edge and epoch")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--out", type=Path, help="folder for scaling.json and scaling.svg")
    arguments = parsed(parser, edges=[50_000])
    rows = []
    for edges in arguments.edges:
        epochs = min(MOST_EPOCHS, 3 * max(arguments.edges) // edges)
        row = in_child(measure, edges, epochs)
        rows.append(row)
        print(f"{edges:>13,} edges: {row['epoch_seconds']:8.4f} s, {row['ns_per_edge']:6.2f} ns per edge", flush=True)
    costs = [row["ns_per_edge"] for row in rows]
    print(f"largest over smallest: {max(costs) / min(costs):.2f}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        summary = {"schema": 1, "cpus": os.cpu_count(), "ratio": max(costs) / min(costs), "rows": rows}
        write_json(arguments.out / "scaling.json", summary)
        plot(arguments.out / "scaling.svg", rows)


if __name__ == "__main__":
    main()
