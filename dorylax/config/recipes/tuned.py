"""Tuned recipes of classic GNNs: Luo, Shi and Wu, "Classic GNNs are Strong Baselines", NeurIPS 2024, arXiv 2406.08993.

The paper tuned GCN, GAT and GraphSAGE for each graph; the settings are those of the commands that its authors published.
Their model is not quite the one here, so its figures need not come out to the tenth: theirs ends with a linear layer
after K convolutions, for which K + 1 convolutions stand here; drops the rows after each layer, and not the features;
adds its shortcut, always a product with a matrix, before the normalisation; and has a loop at each vertex in all models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

SOURCE = "Luo et al., NeurIPS 2024, arXiv 2406.08993, the authors' commands"

# Data set: epochs, whether features are row-normalised, then for each model: width, their layers K, learning rate, weight
# decay, dropout, norm, shortcuts.
_Tuned = tuple[int, int, float, float, float, str, bool]
_ROWS: Mapping[str, tuple[int, bool, Mapping[str, _Tuned]]] = {
    "cora": (
        500,
        False,
        {
            "gcn": (512, 3, 0.001, 5e-4, 0.7, "none", False),
            "sage": (256, 3, 0.001, 5e-4, 0.7, "none", False),
            "gat": (512, 3, 0.001, 5e-4, 0.2, "none", True),
        },
    ),
    "citeseer": (
        500,
        False,
        {
            "gcn": (512, 2, 0.001, 0.01, 0.5, "none", False),
            "sage": (512, 3, 0.001, 0.01, 0.2, "none", False),
            "gat": (256, 3, 0.001, 0.01, 0.5, "none", True),
        },
    ),
    "pubmed": (
        500,
        False,
        {
            "gcn": (256, 2, 0.005, 5e-4, 0.7, "none", False),
            "sage": (512, 4, 0.005, 5e-4, 0.7, "none", False),
            "gat": (512, 2, 0.01, 5e-4, 0.5, "none", False),
        },
    ),
    "amazon-computers": (
        1000,
        True,
        {
            "gcn": (512, 3, 0.001, 5e-5, 0.5, "layer", False),
            "sage": (64, 4, 0.001, 5e-5, 0.3, "layer", False),
            "gat": (64, 2, 0.001, 5e-5, 0.5, "layer", False),
        },
    ),
    "amazon-photo": (
        1000,
        True,
        {
            "gcn": (256, 6, 0.001, 5e-5, 0.5, "layer", True),
            "sage": (64, 6, 0.001, 5e-5, 0.2, "layer", True),
            "gat": (64, 3, 0.001, 5e-5, 0.5, "layer", True),
        },
    ),
    "coauthor-cs": (
        1500,
        True,
        {
            "gcn": (512, 2, 0.001, 5e-4, 0.3, "layer", True),
            "sage": (512, 2, 0.001, 5e-4, 0.5, "layer", True),
            "gat": (256, 1, 0.001, 5e-4, 0.3, "layer", True),
        },
    ),
    "coauthor-physics": (
        1500,
        True,
        {
            "gcn": (64, 2, 0.001, 5e-4, 0.3, "layer", True),
            "sage": (64, 2, 0.001, 5e-4, 0.7, "batch", True),
            "gat": (256, 2, 0.001, 5e-4, 0.7, "batch", True),
        },
    ),
    "wikics": (
        1000,
        False,
        {
            "gcn": (256, 3, 0.001, 0.0, 0.5, "layer", False),
            "sage": (256, 2, 0.001, 0.0, 0.7, "layer", False),
            "gat": (512, 2, 0.001, 0.0, 0.7, "layer", True),
        },
    ),
    "amazon-ratings": (
        2500,
        False,
        {
            "gcn": (512, 4, 0.001, 0.0, 0.5, "batch", True),
            "sage": (512, 9, 0.001, 0.0, 0.5, "batch", True),
            "gat": (512, 4, 0.001, 0.0, 0.5, "batch", True),
        },
    ),
    "minesweeper": (
        2000,
        False,
        {
            "gcn": (64, 12, 0.01, 0.0, 0.2, "batch", True),
            "sage": (64, 15, 0.01, 0.0, 0.2, "batch", True),
            "gat": (64, 15, 0.01, 0.0, 0.2, "batch", True),
        },
    ),
}


def _recipes() -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    for data, (epochs, row_normalise, models) in _ROWS.items():
        for model, (width, layers, rate, decay, dropout, norm, residual) in models.items():
            settings: dict[str, Any] = {
                "model.hidden_features": width,
                "model.num_layers": layers + 1,
                "model.dropout": dropout,
                "model.norm": norm,
                "model.residual": residual,
                "model.jk": "none",
                "optimizer.name": "adam",
                "optimizer.learning_rate": rate,
                "optimizer.weight_decay": decay,
                "optimizer.weight_decay_on": "all",
                "data.row_normalise": row_normalise,
                "train.epochs": epochs,
            }
            if model == "gat":
                settings |= {"model.heads": 1, "model.output_heads": 1, "model.attention_dropout": 0.0}
            if model == "sage":
                settings["model.aggregation"] = "mean"
            yield (model, data), MappingProxyType(settings)


TUNED: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(dict(_recipes()))
"""Model and data set → settings."""
