"""Training larger than memory: epochs of a graph that is streamed from disk, compared with two lower bounds.

    python benchmarks/larger.py reddit-small --memory 1GiB
    python benchmarks/larger.py friendster --scale 0.05 --memory 1.5GiB --folder /data/larger
    python benchmarks/larger.py reddit-small --model gat --scale 0.1 --memory 700MiB
    python benchmarks/larger.py products --layers 3 --norm layer --memory 3GiB
    python benchmarks/larger.py reddit-small --memory 1GiB 2GiB 4GiB 8GiB 16GiB

A graph in one of the shapes below is generated into an archive part by part, unless one is there, in an order of its
communities: 70 % of all neighbours are within 50,000 rows. Then it is trained on. Both are processes of their own, in a
control group whose limit is `--memory` where one can be made (version 1, as root), and otherwise with that setting alone.
`--memory 25%` is a quarter of the estimate of the run in memory. The two bounds are measured in the same process:

  gather   edges of the graph × gathers of an epoch × time of an edge in a gather of the same width over rows in memory. A
           pass goes through 16 windows of this graph; there are three before the epochs, one after each, and three in the
           end. Of an epoch those right before and right after it count, as others may slow the machine down for minutes
  disk     bytes that an epoch reads and writes / bandwidth of reading the archive past the page cache, the median of
           measurements before and after the epochs

The shapes are the paper's (`amazon`, `friendster`, `reddit-small`), those of GriNNder with its width (`products`,
`igb-medium`; docs/memory.md), and OGB's `papers100m`; `--scale` multiplies vertices and edges.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dorylax.settings.byte_sizes import parse_bytes
from harness.child import in_child
from harness.command_line import parsed, parser_of, write_json
from harness.measure import GIB, peak_bytes


class Shape(NamedTuple):
    """A graph's, and the width of the model's hidden layer."""

    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int
    hidden: int


SHAPES = {
    "tiny": Shape(400_000, 2_000_000, 128, 4, 8),
    "reddit-small": Shape(232_965, 114_800_000, 602, 41, 128),
    "amazon": Shape(9_200_000, 313_900_000, 300, 25, 16),
    "friendster": Shape(65_600_000, 3_600_000_000, 32, 50, 16),
    "papers100m": Shape(111_000_000, 3_200_000_000, 128, 172, 16),
    "products": Shape(2_449_029, 123_718_280, 100, 47, 256),
    "igb-medium": Shape(10_000_000, 120_077_694, 1024, 19, 256),
}
_GROUPS = Path("/sys/fs/cgroup/memory")
_WINDOWS = 16
_EDGES = 4_000_000  # of a window
_PASSES = 3
_COMMUNITY = 50_000  # vertices


def generate(archive: Path, shape: Shape, scale: float, memory: str, group: Path | None) -> float:
    """Writes the archive; its seconds."""
    enter(group)
    from dorylax.graph import datasets

    begin = time.perf_counter()
    vertices = round(shape.num_vertices * scale)
    classes = min(shape.num_classes, vertices)
    datasets.generate(
        "communities",
        archive,
        memory=memory,
        num_vertices=vertices,
        num_edges=round(shape.num_edges * scale) // 2 * 2,
        num_features=shape.num_features,
        num_classes=classes,
        num_communities=max(classes, vertices // _COMMUNITY),
        homophily=0.7,
        order="community",
    )
    return time.perf_counter() - begin


def bytes_of(memory: str, *run: Any) -> int:
    """A limit that is given as a size, or as a part of what the run takes in memory."""
    if not memory.endswith("%"):
        return parse_bytes(memory)
    return round(float(memory[:-1]) / 100 * in_child(bytes_in_memory, *run))


def bytes_in_memory(archive: Path, shape: Shape, model: str, dropout: float) -> int:
    """The peak of the run where all is in memory."""
    from dorylax.config import RunConfig
    from dorylax.trainer.footprint.of_config import estimate

    name, options = settings_of(model, dropout)
    settings = {"data.name": str(archive), "model.name": name, "single.order": "given"}
    settings["model.hidden_features"] = hidden_of(name, shape)
    found = estimate(RunConfig.resolve(settings | {f"model.{key}": value for key, value in options.items()}))
    assert found is not None
    return found.peak.total


def settings_of(model: str, dropout: float) -> tuple[str, dict[str, Any]]:
    """The name of a model, and its options."""
    name, _, aggregation = model.partition("-")
    return name, ({} if name == "gat" else {"dropout": dropout}) | ({"aggregation": aggregation} if aggregation else {})


def hidden_of(name: str, shape: Shape) -> int:
    """The width of hidden rows, of GAT of each of 8 heads."""
    return max(1, shape.hidden // 8) if name == "gat" else shape.hidden


def enter(group: Path | None) -> None:
    """Makes this process count for the group."""
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[Path | None]:
    """A control group of that memory, for this process's children to enter; None where none can be made."""
    group = _GROUPS / f"dorylax-larger-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


def train(archive: Path, shape: Shape, options: dict[str, Any], group: Path | None) -> dict[str, Any]:
    """Trains, and measures the bounds."""
    enter(group)
    import optax
    from flax import nnx

    from dorylax import layers
    from dorylax.calibration.streamed import disk_bandwidth
    from dorylax.graph.dataset import Dataset
    from dorylax.trainer import Trainer

    begin = time.perf_counter()
    data = Dataset.from_folder(archive)
    loaded = time.perf_counter() - begin
    clock = Clock()
    name, deep = settings_of(options["model"], options["dropout"])
    kind: Any = {"gcn": layers.GCN, "gat": layers.GAT, "sage": layers.GraphSAGE, "gin": layers.GIN}[name]
    deep |= {"num_layers": options["layers"], "norm": options["norm"], "rngs": nnx.Rngs(0)}
    epochs = options["epochs"]
    trainer = Trainer(
        kind(data.num_features, hidden_of(name, shape), data.num_classes, **deep),
        data,
        optimizer=optax.adam(0.01),
        order="given",
        observers=[clock],
        **{"epochs": epochs, "eval_every": epochs, "memory_limit": options["memory"], "scratch": options["scratch"]},
    )
    run = clock.run = trainer._machine.streamed
    bandwidths: list[float] = []
    windows: Windows | None = None
    if run is not None:
        # What is gathered in blocks of columns is in memory some columns at a time.
        windows = Windows(data, min([shape.hidden, *run.layouts.training.blocked.values()]))
        clock.passes.append(windows.passes(_PASSES))
        clock.windows = windows
        bandwidths.append(disk_bandwidth(archive / "features.npy"))
    data.release()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again: mapped data and windows do not count
    result = trainer.fit(interactive=False)
    history = result.history
    found: dict[str, Any] = {
        "load_seconds": loaded,
        "once_seconds": result.timings.train - sum(record.seconds for record in history),
        "epoch_seconds": [record.seconds for record in history],
        "evaluation_seconds": result.timings.evaluate,
        "losses": [record.loss for record in history],
        "val_accuracy": history[-1].val_accuracy,
        "core_seconds": clock.core_seconds,
        "peak_bytes": peak_bytes(),
        "group_bytes": None if group is None else int((group / "memory.max_usage_in_bytes").read_text()),
    }
    if run is None or windows is None:
        return {**found, "streamed": None}
    clock.passes[-1] += windows.passes(_PASSES)
    bandwidths.append(disk_bandwidth(archive / "features.npy"))
    layout = run.layouts.training
    read, written = layout.traffic
    edges = layout.index_reads * layout.num_edges
    found["streamed"] = {
        "read": read,
        "written": written,
        "gathers": layout.index_reads,
        "edges": edges,
        "edges_gone_through": clock.edges[-1],
    }
    bandwidth = statistics.median(bandwidths)
    all_passes = [one for passes in clock.passes for one in passes]
    each = [statistics.median([*before, *after] or all_passes) for before, after in pairwise(clock.passes)]
    disk = (read + written) / bandwidth
    found["bounds"] = {
        "gather": [edges * one for one in each],
        "disk": disk,
        "bytes_per_second": bandwidth,
        "nanoseconds_per_edge_of_passes": [[1e9 * one for one in passes] for passes in clock.passes],
        "ratios": [seconds / max(edges * one, disk) for seconds, one in zip(found["epoch_seconds"], each, strict=True)],
    }
    return found


class Clock:
    """An observer: by epoch, seconds of all cores, edges gone through, and passes over windows before and after."""

    def __init__(self) -> None:
        self.run: Any = None
        self.windows: Windows | None = None
        self.passes: list[list[float]] = []
        self.core_seconds: list[float] = []
        self.edges: list[int] = []
        self._before = 0.0

    def started(self, epochs: int, first_epoch: int) -> None:
        """See `Observer`."""

    def epoch(self, record: Any) -> None:
        """See `Observer`."""
        self.core_seconds.append(time.process_time() - self._before)
        if self.run is not None:
            self.edges.append(self.run.training.traffic.edges - sum(self.edges))
        print(f"epoch {record.epoch}: loss {record.loss:.6f}, {record.seconds:.2f} s", flush=True)
        if self.windows is not None:
            self.passes.append(self.windows.passes_over(self.run.training))
        self._before = time.process_time()

    def finished(self, result: Any) -> None:
        """See `Observer`."""


class Windows:
    """Parts of a graph, spread over all of it, whose edges are gone through in sums over neighbours.

    A pass goes once through all, as an epoch does: rows that a window has read are in no cache when it comes again.

    Args:
        data: with the graph.
        width: float32 numbers in a row.
    """

    def __init__(self, data: Any, width: int) -> None:
        from dorylax.graph.compressed import as_int64

        self._data = data
        offsets = as_int64(data.graph.incoming.offsets)
        V, E = len(offsets) - 1, data.graph.num_edges
        self._shape = (V, 1, width)
        self._bounds = []
        for k in range(_WINDOWS):
            first = int(np.searchsorted(offsets, k * E // _WINDOWS))
            end = int(np.searchsorted(offsets, offsets[first] + min(_EDGES, E // _WINDOWS), side="right")) - 1
            self._bounds.append((first, max(first + 1, end)))

    def passes(self, count: int) -> list[float]:
        """Seconds of an edge in some passes, over rows of ones on huge pages."""
        from dorylax.streaming.direct import anonymous

        x = anonymous(4 * math.prod(self._shape)).view(np.float32).reshape(self._shape)
        x[...] = 1
        return [self._seconds(x) for _ in range(count)]

    def passes_over(self, program: Any) -> list[float]:
        """Those of a pass over the very memory in which a program gathers, between two epochs; none where that is gone."""
        spare = [one for one in program._spare._spare if one.nbytes == 4 * math.prod(self._shape)]
        return [self._seconds(one.reshape(-1).view(np.float32).reshape(self._shape)) for one in spare[:1]]

    def _seconds(self, x: np.ndarray) -> float:
        from dorylax.calibration.streamed import edge_seconds
        from dorylax.graph.compressed import as_int64
        from dorylax.streaming.graph_steps import UnitRows

        incoming = self._data.graph.incoming
        offsets, neighbours = as_int64(incoming.offsets), incoming.neighbours
        seconds = edges = 0.0
        for first, end in self._bounds:
            mine = offsets[first : end + 1]
            unit = UnitRows(mine - mine[0], np.array(neighbours[mine[0] : mine[-1]]), first)
            seconds += edge_seconds(x, [unit]) * len(unit.neighbours)
            edges += len(unit.neighbours)
        self._data.release()  # what was mapped would take memory from the run
        return seconds / edges


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("shape", nargs="?", choices=SHAPES, default="reddit-small")
    parser.add_argument("--scale", type=float, default=1.0, help="of vertices and edges")
    limit = "limit of the process, or a part of what it takes in memory (25%%); several: one run each"
    parser.add_argument("--memory", nargs="+", default=["1GiB"], help=limit)
    parser.add_argument("--model", choices=["gcn", "gat", "sage-max", "gin"], default="gcn")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, help="width of hidden rows; the shape's by default")
    parser.add_argument("--norm", choices=["none", "layer"], default="none", help="of hidden rows")
    parser.add_argument("--dropout", type=float, default=0.0, help="of all but GAT; with it nothing is computed once")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where archive and scratch files are; a temporary one by default")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parsed(parser, shape="tiny", memory=["92%"])
    shape = SHAPES[arguments.shape]
    shape = shape._replace(hidden=arguments.hidden or shape.hidden)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="dorylax-larger-"))
    archive = folder / f"{arguments.shape}-{arguments.scale:g}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        summary: dict[str, Any] = {"schema": 4, "shape": arguments.shape, "scale": arguments.scale}
        runs: list[dict[str, Any]] = []
        if not archive.exists():
            budget = "1GiB" if arguments.memory[0].endswith("%") else arguments.memory[0]
            with control_group(parse_bytes(budget)) as group:
                made = in_child(generate, archive, shape, arguments.scale, budget, group)
            summary["generate_seconds"] = made
            print(f"generating and writing: {made:.1f} s", flush=True)
        for limit in arguments.memory:
            memory = bytes_of(limit, archive, shape, arguments.model, arguments.dropout)
            print(f"the limit is {memory / GIB:.2f} GiB", flush=True)
            options = vars(arguments) | {"memory": f"{memory >> 20}MiB", "scratch": str(folder)}
            with control_group(memory) as group:
                if group is None:
                    print("no control group can be made here: the setting alone limits the run")
                runs.append({"limit": memory, **in_child(train, archive, shape, options, group)})
            _print(runs[-1])
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder)
    write_json(arguments.json, summary | {"runs": runs})


def _print(found: dict[str, Any]) -> None:
    def listed(values: list[float], digits: int = 2) -> str:
        return ", ".join(f"{one:.{digits}f}" for one in values)

    print(
        f"load {found['load_seconds']:.1f} s, once {found['once_seconds']:.1f} s, epochs {listed(found['epoch_seconds'])} s "
        f"(core seconds {listed(found['core_seconds'][1:])})\n"
        f"evaluation {found['evaluation_seconds']:.1f} s, validation accuracy {found['val_accuracy']:.4f}\n"
        f"losses {listed(found['losses'], 6)}; peak {found['peak_bytes'] / GIB:.2f} GiB"
    )
    if found["group_bytes"] is not None:
        print(f"the control group held {found['group_bytes'] / GIB:.2f} GiB at most, pages of files included")
    streamed = found["streamed"]
    if streamed is None:
        print("it fits: nothing was streamed")
        return
    bounds = found["bounds"]
    passes = " | ".join(listed(some, 1) for some in bounds["nanoseconds_per_edge_of_passes"])
    after = statistics.median(bounds["ratios"][1:] or bounds["ratios"])
    print(
        f"an epoch has {streamed['gathers']} gathers, {streamed['edges'] / 1e6:,.1f} M edges, of which "
        f"{streamed['edges_gone_through'] / 1e6:,.1f} M are gone through; it reads {streamed['read'] / 1e9:.2f} GB "
        f"and writes {streamed['written'] / 1e9:.2f} GB\n"
        f"bounds: gather {listed(bounds['gather'], 1)} s (ns an edge before, between and after epochs: {passes})\n"
        f"        disk {bounds['disk']:.2f} s ({bounds['bytes_per_second'] / 1e9:.2f} GB/s)\n"
        f"epochs take {listed(bounds['ratios'])} × the larger bound, those after the first {after:.2f} in the middle"
    )


if __name__ == "__main__":
    main()
