"""dorylax on a GPU: are its operators right, and how long is an epoch compared with PyTorch Geometric?

    python benchmarks/gpu.py                         # five minutes on an H200
    python benchmarks/gpu.py --only operators        # right or not, in a minute

dorylax has no kernels of its own for GPUs: its operators are `jax.ops.segment_*` there (`dorylax/ops/segment.py`), compiled
by XLA. Without a GPU everything runs on the CPU, operators by the same lowering, and the first line says so. Parts:

- operators: values and gradients of each on the device, on random data, compared with the CPU's native kernels in float32:
  ‖difference‖ / ‖reference‖. The benchmark fails above 1e-5, for whole models above 1e-3: where a sum of two scores
  differs in its last bit, it may differ in its sign, and LeakyReLU's slope at that one edge moves a gradient by 1e-4.
- epochs: median of `--epochs` epochs of two layers (`full_graph.py`'s shapes and models), losses compared with PyG's.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from full_graph import HIDDEN, SHAPES, difference, generate, measure, run_side

from harness.child import in_child
from harness.command_line import parsed, parser_of, write_json

PARTS = ("operators", "epochs")
MOST_ERROR, MOST_ERROR_OF_MODELS = 1e-5, 1e-3


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {PARTS} (all)")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["attention", "reddit-small"], help="of epochs")
    parser.add_argument("--models", nargs="+", choices=HIDDEN, default=["gcn", "gat"], help="of epochs")
    parser.add_argument("--epochs", type=int, default=10, help="timed after the first")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parsed(parser, shapes=["tiny"], models=["gcn"], epochs=1)
    found: dict[str, Any] = {"device": in_child(device)}
    print(f"device: {found['device']}", flush=True)
    if "operators" in options.only:
        found["operators"] = in_child(operators, *((500, 6_000) if options.tiny else ()))
        print("\n".join(f"{name:<34} {error:.1e}" for name, error in found["operators"].items()), flush=True)
    if "epochs" in options.only:
        found["epochs"] = epochs(options)
    write_json(options.json, found)
    for name, error in found.get("operators", {}).items():
        limit = MOST_ERROR_OF_MODELS if name.startswith("model ") else MOST_ERROR
        if not error <= limit:
            raise SystemExit(f"{name} differs by {error:.1e}, expected at most {limit:g}")


def device() -> str:
    """What JAX computes on."""
    import jax

    found = jax.devices()[0]
    return f"{found.platform} ({found.device_kind}), JAX {jax.__version__}"


def operators(num_vertices: int = 20_000, num_edges: int = 600_000) -> dict[str, float]:
    """‖difference‖ / ‖reference‖ by operator, of values and gradients on the device and on the CPU."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from dorylax import ops
    from dorylax.graph.graph import Graph
    from dorylax.layers import GAT, GCN, GIN, GraphSAGE
    from dorylax.ops import native

    rng = np.random.default_rng()  # fresh data in every run: the same function on any input
    V, E = num_vertices, num_edges
    edges = np.stack([rng.integers(0, V, E), (V * rng.random(E) ** 2.5).astype(np.int64)])
    graph = Graph.from_edge_index(edges, num_vertices=V)
    x = rng.standard_normal((V, 3, 16), np.float32)
    heads = rng.standard_normal((E, 3), np.float32)
    scores = rng.standard_normal((2, V, 3), np.float32)
    cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        f"gather {reduce}": (lambda g, x, reduce=reduce: ops.gather(g, x, reduce=reduce), (x,))
        for reduce in ("sum", "mean", "max", "min")
    }
    cases |= {
        "gather weighted": (ops.gather, (x, heads)),
        "scatter_src": (ops.scatter_src, (x,)),
        "scatter_dst": (ops.scatter_dst, (x,)),
        "gather_edges": (ops.gather_edges, (heads,)),
        "edge_softmax": (ops.edge_softmax, (heads,)),
        "additive_attention": (ops.additive_attention, (x, *scores)),
    }
    flat = x.reshape(V, -1)
    for kind in (GCN, GraphSAGE, GIN, GAT):
        model = kind(flat.shape[1], 16, 7, rngs=nnx.Rngs(0))
        model.eval()
        definition, state, rest = nnx.split(model, nnx.Param, ...)
        leaves, tree = jax.tree.flatten(state)

        def applied(g: Any, x: Any, *leaves: Any, parts: Any = (definition, rest), tree: Any = tree) -> Any:
            return nnx.merge(parts[0], jax.tree.unflatten(tree, leaves), parts[1])(g, x)

        cases[f"model {kind.__name__}"] = (applied, (flat, *map(np.asarray, leaves)))
    found = {}
    for name, (function, arguments) in cases.items():
        result = jax.eval_shape(function, graph, *arguments)
        weight = rng.standard_normal(result.shape, np.float32)

        def loss(a: Any, graph: Any, function: Any = function, weight: Any = weight) -> Any:
            y = function(graph, *a)
            return jnp.vdot(y, weight), y

        with jax.default_matmul_precision("highest"):
            with native.plain_operators():  # of no meaning to a GPU
                there = jax.device_get(jax.jit(jax.grad(loss, has_aux=True))(arguments, graph))
            with jax.default_device(jax.devices("cpu")[0]):
                here = jax.device_get(jax.jit(jax.grad(loss, has_aux=True))(arguments, graph))
        for part, (got, wanted) in zip(("gradient", "value"), zip(there, here, strict=True), strict=True):
            ours, reference = (np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(one)]) for one in (got, wanted))
            found[f"{name}, {part}"] = float(np.linalg.norm(ours - reference) / np.linalg.norm(reference))
    return found


def epochs(options: Any) -> dict[str, Any]:
    """Prints seconds of an epoch by shape and model, compared with PyG's."""
    found: dict[str, Any] = {}
    print(f"{'epochs of':<24} {'dorylax':>10} {'pyg':>10} {'dorylax is':>11}  loss differs", flush=True)
    for shape, model in itertools.product(options.shapes, options.models):
        with tempfile.TemporaryDirectory(prefix="dorylax-benchmark-") as name:
            in_child(generate, Path(name), SHAPES[shape], model)
            made = {side: measure(side, Path(name), options.epochs, train) for side in ("dorylax", "pyg")}
        found[f"{shape} {model}"] = sides = {side: one for side, one in made.items() if one is not None}
        ours, theirs = (made[side]["epoch_seconds"] if side in sides else math.nan for side in made)
        differs = difference(*(one["losses"] for one in sides.values())) if len(sides) == 2 else math.nan
        print(
            f"{f'{shape}, {model}':<24} {1e3 * ours:>7.1f} ms {1e3 * theirs:>7.1f} ms {theirs / ours:>9.2f} ×  "
            f"{differs:.1e}",
            flush=True,
        )
    return found


def train(side: str, folder: Path, count: int) -> dict[str, Any]:
    """One side, in this process, on the GPU if there is one."""
    if side == "dorylax":
        return run_side(side, folder, count, order="given")
    import torch

    return run_side(side, folder, count, device="cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
