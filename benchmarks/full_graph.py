"""Full-graph training on one machine beside its peers: epoch time, peak memory and loss curve, all in one run.

    python benchmarks/full_graph.py --shape reddit-small --out full-graph     # 15 minutes on two cores, 12 GiB
    python benchmarks/full_graph.py --shape attention --model gat --out gat

Two layers, full batch, Adam, no dropout (no two libraries drop the same elements), the same initial parameters. The graph
is generated (`communities`) with the shape's numbers. Each side runs in a process of its own, one after the other, which
reads the same files; a warm-up epoch and then the timed ones, of which the table has the median. Sides:

- dorylax: a `Trainer`, as users run it. Its one-time costs are named: `order` (vertices put in community order), `hoist`
  (Â·X, the same in every epoch), `compile`.
- dorylax-given, dorylax-plain: the same without the order, and without the optimised program, to tell what each is worth
  and after how many epochs it has paid for itself.
- dorylax-bfloat16: gathered rows stored in 16 bits, summed in 32.
- pyg: PyTorch Geometric as its users write it (transform before gather, CSR, cached normalisation).
- torch: torch's CSR product with a hand-written backward, transform before gather (GCN only).
- torch-algebra: the same with dorylax's algebra done by hand: Â·X computed once (GCN only).

Peak memory is VmHWM of the process, mapped pages included: `set-up` until the first epoch begins, `training` after it.
The benchmark fails where a loss differs from dorylax' by more than 1e-3 (1e-2 for bfloat16), of itself where it is above 1.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from harness.child import ChildDiedError, in_child
from harness.command_line import parsed, parser_of, write_json
from harness.measure import peak_bytes
from sides.problem import Problem, parameters, read, write


class Shape(NamedTuple):
    """Numbers of a graph and its data."""

    vertices: int
    edges: int
    features: int
    classes: int


SHAPES = {
    "tiny": Shape(2_000, 60_000, 32, 7),
    "attention": Shape(200_000, 20_000_000, 128, 41),
    "attention-half": Shape(100_000, 10_000_000, 128, 41),
    "amazon-small": Shape(1_150_000, 39_240_000, 300, 25),
    "reddit-small": Shape(232_965, 114_800_000, 602, 41),
}
HIDDEN = {"gcn": 128, "sage": 128, "gin": 128, "gat": 64}
DORYLAX: dict[str, dict[str, Any]] = {
    "dorylax": {},
    "dorylax-given": {"order": "given"},
    "dorylax-plain": {"optimize": False},
    "dorylax-bfloat16": {"gathered": "bfloat16"},
}
PEERS = {"pyg": ("torch", "torch_geometric"), "torch": ("torch",), "torch-algebra": ("torch",)}
"""Sides that are not dorylax, and the libraries that they need."""

TOLERANCE = {"dorylax-bfloat16": 1e-2}


def run_side(side: str, folder: Path, epochs: int) -> dict[str, Any]:
    """One side, in this process."""
    problem = read(folder)
    if side in DORYLAX:
        from sides import dorylax_side

        found = dorylax_side.train(problem, epochs, **DORYLAX[side])
    elif side == "pyg":
        from sides import pyg_side

        found = pyg_side.train(problem, epochs)
    else:
        from sides import torch_side

        found = torch_side.train(problem, epochs, algebra=side == "torch-algebra")
    return found | {"peak_bytes": peak_bytes(), "epoch_seconds": statistics.median(found["seconds"][1:])}


def generate(folder: Path, shape: Shape, model: str) -> None:
    """Writes the problem."""
    from dorylax.graph import datasets

    data = datasets.load(
        "communities",
        num_vertices=shape.vertices,
        num_edges=shape.edges,
        num_features=shape.features,
        num_classes=shape.classes,
    )
    layers = parameters(model, (shape.features, HIDDEN[model], shape.classes), degree=shape.edges / shape.vertices)
    rows = data.graph.incoming
    arrays = (rows.offsets, rows.neighbours, data.features, data.labels, data.train_mask)
    write(folder, Problem(model, *arrays, shape.classes, layers))


def measure(side: str, folder: Path, epochs: int) -> dict[str, Any] | None:
    """One side, in a process of its own; None where it is not installed or does not survive."""
    missing = [name for name in PEERS.get(side, ()) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out: {side} needs {missing[0]}, which is not installed", flush=True)
        return None
    # An order that an earlier run has kept would hide what it costs.
    environment = {"DORYLAX_CACHE": str(folder / f"{side}-cache")}
    try:
        found: dict[str, Any] = in_child(run_side, side, folder, epochs, environment=environment)
    except ChildDiedError as error:
        print(f"left out: {side} {error}", flush=True)
        return None
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """The sides as lines."""
    ours = found["dorylax"]
    lines = [
        f"{'side':<17} {'epoch':>9} {'dorylax is':>11} {'peak':>9} {'of dorylax':>11}  {'loss differs':>12}  set-up"
    ]
    for side, one in found.items():
        differs = difference(one["losses"], ours["losses"])
        setup = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in one["setup"].items() if seconds >= 0.05)
        lines.append(
            f"{side:<17} {one['epoch_seconds']:>7.2f} s {one['epoch_seconds'] / ours['epoch_seconds']:>9.1f} × "
            f"{one['peak_bytes'] / 2**30:>5.2f} GiB {one['peak_bytes'] / ours['peak_bytes']:>9.1f} ×  "
            f"{differs:>12.1e}  {setup}"
        )
    return "\n".join(lines)


def difference(losses: list[float], others: list[float]) -> float:
    """The largest difference of two curves, relative where the loss is above 1."""
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(losses, others, strict=True))


def paid_back(found: dict[str, dict[str, Any]]) -> dict[str, float | None]:
    """Epochs after which order and hoisting have saved what they cost; None where they save nothing."""
    ours, epochs = found["dorylax"], {}
    for name, without in (("order", "dorylax-given"), ("hoist", "dorylax-plain")):
        if without in found:
            saved = found[without]["epoch_seconds"] - ours["epoch_seconds"]
            epochs[name] = ours["setup"][name] / saved if saved > 0 else None
    return epochs


def plot(path: Path, found: dict[str, dict[str, Any]], title: str) -> None:
    """Epoch time, peak memory and loss curves."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, (time_axis, memory_axis, loss_axis) = plt.subplots(1, 3, figsize=(12, 0.45 * len(found) + 2.2))
    names = list(found)[::-1]
    for axis, label, values in (
        (time_axis, "seconds per epoch", [found[name]["epoch_seconds"] for name in names]),
        (memory_axis, "peak memory, GiB", [found[name]["peak_bytes"] / 2**30 for name in names]),
    ):
        bars = axis.barh(names, values, color=["#c0392b" if name == "dorylax" else "#9aa5b1" for name in names])
        axis.bar_label(bars, fmt="%.3g", padding=3)
        axis.set_xlabel(label)
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    memory_axis.set_yticklabels([])
    for k, (name, one) in enumerate(found.items()):
        loss_axis.plot(one["losses"], label=name, linewidth=1.3 * (len(found) - k), alpha=0.9)
    loss_axis.set_xlabel("epoch")
    loss_axis.set_ylabel("training loss")
    loss_axis.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    loss_axis.legend(fontsize=8, handlelength=1.5)
    loss_axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shape", choices=list(SHAPES), default="reddit-small")
    parser.add_argument("--model", choices=list(HIDDEN), default="gcn")
    parser.add_argument(
        "--peers", default=None, help=f"comma-separated, of {', '.join(PEERS)}; all that know the model"
    )
    parser.add_argument("--variants", default=None, help=f"comma-separated, of {', '.join(list(DORYLAX)[1:])}; all")
    parser.add_argument("--epochs", type=int, default=3, help="timed ones, after a warm-up")
    parser.add_argument("--out", type=Path, help="folder for full_graph.json and full_graph.svg")
    arguments = parsed(parser, shape="tiny", peers="pyg,torch-algebra", variants="", epochs=1)
    peers = list(PEERS) if arguments.model == "gcn" else ["pyg"]
    sides = ["dorylax", *_chosen(arguments.variants, list(DORYLAX)[1:]), *_chosen(arguments.peers, peers)]
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    shape = SHAPES[arguments.shape]
    title = f"{arguments.shape}: {shape.vertices:,} vertices, {shape.edges:,} edges, {shape.features} features, "
    title += f"{shape.classes} classes; {arguments.model} of width {HIDDEN[arguments.model]}"
    print(title, flush=True)
    found = {}
    with tempfile.TemporaryDirectory(prefix="dorylax-benchmark-") as name:
        folder = Path(name)
        in_child(generate, folder, shape, arguments.model)
        for side in sides:
            if (one := measure(side, folder, arguments.epochs)) is not None:
                found[side] = one
                print(f"{side}: {one['epoch_seconds']:.2f} s an epoch", flush=True)
    if "dorylax" not in found:
        raise SystemExit("dorylax itself did not survive: there is nothing to compare with")
    print(table(found))
    epochs = paid_back(found)
    for name, number in epochs.items():
        print(f"{name} is paid back after {'no number of' if number is None else f'{number:.0f}'} epochs")
    if arguments.out:
        facts = {"schema": 1, "shape": arguments.shape, **shape._asdict(), "model": arguments.model}
        machine = {"cpus": os.cpu_count(), "processor": platform.processor() or platform.machine()}
        summary = facts | machine | {"paid_back_after_epochs": epochs, "sides": found}
        write_json(arguments.out / "full_graph.json", summary)
        plot(arguments.out / "full_graph.svg", found, title)
    ours = found["dorylax"]["losses"]
    for side, one in found.items():
        worst = difference(one["losses"], ours)
        if not worst <= TOLERANCE.get(side, 1e-3):
            raise SystemExit(f"the loss curve of {side} differs from dorylax' by {worst:.1e}")


def _chosen(text: str | None, known: Any) -> list[str]:
    names = list(known) if text is None else [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no side {name!r} here: expected some of {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
