"""A billion edges on one machine: full-graph training of a GCN on a graph of the paper's largest Reddit shape.

    python benchmarks/billion.py                              # about 20 minutes on two cores, 7 GB of disk
    python benchmarks/billion.py --folder /data/large --order given
    python benchmarks/billion.py --size reddit-small --epochs 5

The graph (1.1 million vertices, 1.3 billion directed edges, 301 features, 50 classes) is generated and written to an
archive; one that is there already is used again. Then, in a process of its own, it is trained on as a user would: the
archive is loaded, which maps it into memory, and a `Trainer` trains a 2-layer GCN of width 128 for 3 epochs and evaluates
it.

Each step's seconds are printed, and the peak resident memory (VmHWM, mapped pages included) beside what `dorylax info` says
before a run. The benchmark fails above `--limit` GiB, and where the loss does not fall.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from harness.child import in_child
from harness.command_line import parsed, parser_of, write_json
from harness.estimate import estimated_peak
from harness.measure import Stopwatch, peak_bytes

HIDDEN = 128
ARCHIVE = "{size}.npz"


def generate(archive: Path, size: str) -> dict[str, Any]:
    """Writes the archive."""
    from dorylax.graph import datasets

    watch = Stopwatch()
    data = watch.time("generate", lambda: datasets.load("communities", size=size))
    watch.time("write", lambda: data.save_npz(archive))
    return {"seconds": watch.seconds, "peak_bytes": peak_bytes(), "file_bytes": archive.stat().st_size}


def train(archive: Path, order: str, epochs: int) -> dict[str, Any]:
    """Loads the archive and trains."""
    import optax
    from flax import nnx

    from dorylax.graph.dataset import Dataset
    from dorylax.layers import GCN
    from dorylax.trainer import Trainer

    watch = Stopwatch()
    data = watch.time("load", lambda: Dataset.from_npz(archive))
    print(f"{data.graph}, {data.num_features} features, {data.num_classes} classes", flush=True)
    model = GCN(data.num_features, HIDDEN, data.num_classes, dropout=0.0, rngs=nnx.Rngs(0))
    trainer = Trainer(
        model, data, optimizer=optax.adam(0.01), epochs=epochs, eval_every=epochs, order=order, observers=[Lines()]
    )
    result = trainer.fit()
    epoch_seconds = [record.seconds for record in result.history]
    watch.seconds |= {
        "compile and order": result.timings.compile,
        "hoist": result.timings.train - sum(epoch_seconds),
        "evaluate": result.timings.evaluate,
    }
    last = result.history[-1]
    return {
        "seconds": watch.seconds,
        "epoch_seconds": epoch_seconds,
        "losses": [record.loss for record in result.history],
        "test_accuracy": last.test_accuracy,
        "peak_bytes": peak_bytes(),
    }


class Lines:
    """Says when an epoch is over."""

    def started(self, epochs: int, first_epoch: int) -> None:
        """See `Observer`."""

    def epoch(self, record: Any) -> None:
        """See `Observer`."""
        print(f"epoch {record.epoch}: loss {record.loss:.4f}, {record.seconds:.1f} s", flush=True)

    def finished(self, result: Any) -> None:
        """See `Observer`."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, help="where the archive is kept; a temporary one, removed, by default")
    parser.add_argument("--size", default="reddit-large", help="of the data set `communities`")
    parser.add_argument("--order", choices=["auto", "given", "community"], default="auto")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=18.0, help="GiB")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, size="tiny")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="dorylax-billion-"))
    archive = folder / ARCHIVE.format(size=arguments.size)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        summary: dict[str, Any] = {"schema": 1, "size": arguments.size, "cpus": os.cpu_count()}
        if not archive.exists():
            summary["generate"] = in_child(generate, archive, arguments.size)
            _print("generating", summary["generate"])
        settings = ("model.dropout=0", f"model.hidden_features={HIDDEN}", f"single.order={arguments.order}")
        words = [word for setting in settings for word in ("--set", setting)]
        summary["estimated_bytes"], _ = estimated_peak(["--data", str(archive), "--model", "gcn", *words])
        with tempfile.TemporaryDirectory() as cache:  # an order that an earlier run has kept would hide what it costs
            chosen = (archive, arguments.order, arguments.epochs)
            summary["train"] = in_child(train, *chosen, environment={"DORYLAX_CACHE": cache})
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder)
    trained = summary["train"]
    _print("training", trained)
    print(f"epochs: {', '.join(f'{seconds:.1f} s' for seconds in trained['epoch_seconds'])}")
    print(
        f"loss: {', '.join(f'{loss:.4f}' for loss in trained['losses'])}; test accuracy {trained['test_accuracy']:.4f}"
    )
    ratio = summary["estimated_bytes"] / trained["peak_bytes"]
    print(f"`dorylax info` said {summary['estimated_bytes'] / 2**30:.2f} GiB: {ratio:.2f} of what it was")
    write_json(arguments.json, summary)
    if trained["peak_bytes"] > arguments.limit * 2**30:
        raise SystemExit(f"peak memory is above {arguments.limit:g} GiB")
    if not trained["losses"][-1] < trained["losses"][0]:
        raise SystemExit("the loss does not fall")


def _print(name: str, found: dict[str, Any]) -> None:
    seconds = ", ".join(f"{step} {spent:.1f} s" for step, spent in found["seconds"].items())
    print(f"{name}: {seconds}; peak memory {found['peak_bytes'] / 2**30:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
