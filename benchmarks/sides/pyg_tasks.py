"""PyTorch Geometric's side of `tasks.py`: its own loops for links, targets of vertices, and graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.nn import GAE, GCNConv, global_mean_pool

from dorylax.graph import Dataset, Graph
from dorylax.graph.link_splits import Links, LinkSplit
from dorylax.graph.rows import all_rows

Judge = Callable[[np.ndarray, np.ndarray], float]
"""`(outputs, labels) -> metric`: the same function on both sides."""


class Encoder(torch.nn.Module):
    """Two graph convolutions, as in examples/autoencoder.py and examples/gcn.py, without dropout."""

    def __init__(self, in_features: int, hidden: int, out_features: int) -> None:
        super().__init__()
        self.first = GCNConv(in_features, hidden)
        self.last = GCNConv(hidden, out_features)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """`[V, F]` → `[V, D]`."""
        found: torch.Tensor = self.last(self.first(x, edges).relu(), edges)
        return found


def links(data: Dataset, split: LinkSplit, judge: Judge, *, epochs: int, seed: int) -> tuple[float, float]:
    """`torch_geometric.nn.GAE` by the recipe of examples/autoencoder.py; validation and test at the best validation."""
    torch.manual_seed(seed)
    model = GAE(Encoder(data.num_features, 32, 16))
    x, edges = torch.from_numpy(np.array(data.features)), _edges(split.graph)
    joined = _pairs(split.train)[:, split.train.labels == 1]
    positive = torch.from_numpy(np.concatenate([joined, joined[::-1]], axis=1))

    def loss() -> torch.Tensor:
        found: torch.Tensor = model.recon_loss(model.encode(x, edges), positive)
        return found

    def scores() -> tuple[float, float]:
        z = model.encode(x, edges)
        both = ((part, torch.from_numpy(_pairs(part))) for part in (split.val, split.test))
        val, test = (judge(model.decode(z, pairs, sigmoid=False).numpy(), part.labels) for part, pairs in both)
        return val, test

    return _train(model, loss, scores, epochs, higher=True)


def vertices(data: Dataset, judge: Judge, *, hidden: int, epochs: int, seed: int) -> tuple[float, float]:
    """Targets of vertices, by the mean squared error; validation and test at the best validation."""
    torch.manual_seed(seed)
    model = Encoder(data.num_features, hidden, 1)
    x, edges, labels = torch.from_numpy(np.array(data.features)), _edges(data.graph), torch.from_numpy(data.labels)
    train = torch.from_numpy(data.train_mask)

    def loss() -> torch.Tensor:
        return torch.nn.functional.mse_loss(model(x, edges)[train, 0], labels[train])

    def scores() -> tuple[float, float]:
        outputs = model(x, edges)[:, 0].numpy()
        val, test = (judge(outputs[mask], data.labels[mask]) for mask in (data.val_mask, data.test_mask))
        return val, test

    return _train(model, loss, scores, epochs, higher=False)


def graphs(
    data: Dataset, labels: np.ndarray, masks: Sequence[np.ndarray], judge: Judge, *, hidden: int, epochs: int, seed: int
) -> tuple[float, float]:
    """Classes of graphs by `global_mean_pool`; validation and test at the best validation."""
    torch.manual_seed(seed)
    model = Encoder(data.num_features, hidden, int(labels.max()) + 1)
    x, edges = torch.from_numpy(np.array(data.features)), _edges(data.graph)
    batch, truth = torch.from_numpy(data.vertex_inputs["graph_of"]).long(), torch.from_numpy(labels).long()
    train = torch.from_numpy(masks[0])

    def loss() -> torch.Tensor:
        outputs = global_mean_pool(model(x, edges), batch)
        return torch.nn.functional.cross_entropy(outputs[train], truth[train])

    def scores() -> tuple[float, float]:
        outputs = global_mean_pool(model(x, edges), batch).numpy()
        val, test = (judge(outputs[mask], labels[mask]) for mask in masks[1:])
        return val, test

    return _train(model, loss, scores, epochs, higher=True)


def _train(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    scores: Callable[[], tuple[float, float]],
    epochs: int,
    *,
    higher: bool,
) -> tuple[float, float]:
    torch.set_num_threads(1)  # nothing is timed, and several wait for each other wherever cores are busy
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    best: Any = None
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            found = scores()
        if best is None or (found[0] > best[0] if higher else found[0] < best[0]):
            best = found
    return float(best[0]), float(best[1])


def _edges(graph: Graph) -> torch.Tensor:
    offsets, sources = graph.host_rows()
    return torch.from_numpy(np.stack([sources, all_rows(offsets)]).astype(np.int64))


def _pairs(links: Links) -> np.ndarray:
    return np.stack([links.sources, links.targets]).astype(np.int64)
