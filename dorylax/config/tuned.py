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

# Data set, epochs, whether features are row-normalised; model, width, layers K of theirs, learning rate, weight decay,
# dropout, norm, shortcuts.
_TABLE = """
cora               500   no  gcn    512   3  0.001   5e-4  0.7  none  no
cora               500   no  sage   256   3  0.001   5e-4  0.7  none  no
cora               500   no  gat    512   3  0.001   5e-4  0.2  none  yes
citeseer           500   no  gcn    512   2  0.001   0.01  0.5  none  no
citeseer           500   no  sage   512   3  0.001   0.01  0.2  none  no
citeseer           500   no  gat    256   3  0.001   0.01  0.5  none  yes
pubmed             500   no  gcn    256   2  0.005   5e-4  0.7  none  no
pubmed             500   no  sage   512   4  0.005   5e-4  0.7  none  no
pubmed             500   no  gat    512   2   0.01   5e-4  0.5  none  no
amazon-computers  1000  yes  gcn    512   3  0.001   5e-5  0.5  layer no
amazon-computers  1000  yes  sage    64   4  0.001   5e-5  0.3  layer no
amazon-computers  1000  yes  gat     64   2  0.001   5e-5  0.5  layer no
amazon-photo      1000  yes  gcn    256   6  0.001   5e-5  0.5  layer yes
amazon-photo      1000  yes  sage    64   6  0.001   5e-5  0.2  layer yes
amazon-photo      1000  yes  gat     64   3  0.001   5e-5  0.5  layer yes
coauthor-cs       1500  yes  gcn    512   2  0.001   5e-4  0.3  layer yes
coauthor-cs       1500  yes  sage   512   2  0.001   5e-4  0.5  layer yes
coauthor-cs       1500  yes  gat    256   1  0.001   5e-4  0.3  layer yes
coauthor-physics  1500  yes  gcn     64   2  0.001   5e-4  0.3  layer yes
coauthor-physics  1500  yes  sage    64   2  0.001   5e-4  0.7  batch yes
coauthor-physics  1500  yes  gat    256   2  0.001   5e-4  0.7  batch yes
wikics            1000   no  gcn    256   3  0.001      0  0.5  layer no
wikics            1000   no  sage   256   2  0.001      0  0.7  layer no
wikics            1000   no  gat    512   2  0.001      0  0.7  layer yes
amazon-ratings    2500   no  gcn    512   4  0.001      0  0.5  batch yes
amazon-ratings    2500   no  sage   512   9  0.001      0  0.5  batch yes
amazon-ratings    2500   no  gat    512   4  0.001      0  0.5  batch yes
minesweeper       2000   no  gcn     64  12   0.01      0  0.2  batch yes
minesweeper       2000   no  sage    64  15   0.01      0  0.2  batch yes
minesweeper       2000   no  gat     64  15   0.01      0  0.2  batch yes
"""


def _recipes() -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    for row in _TABLE.strip().splitlines():
        data, epochs, rows, model, width, layers, rate, decay, dropout, norm, shortcuts = row.split()
        settings: dict[str, Any] = {
            "model.hidden_features": int(width),
            "model.num_layers": int(layers) + 1,
            "model.dropout": float(dropout),
            "model.norm": norm,
            "model.residual": shortcuts == "yes",
            "model.jk": "none",
            "optimizer.name": "adam",
            "optimizer.learning_rate": float(rate),
            "optimizer.weight_decay": float(decay),
            "optimizer.weight_decay_on": "all",
            "data.row_normalise": rows == "yes",
            "train.epochs": int(epochs),
        }
        if model == "gat":
            settings |= {"model.heads": 1, "model.output_heads": 1, "model.attention_dropout": 0.0}
        if model == "sage":
            settings["model.aggregation"] = "mean"
        yield (model, data), MappingProxyType(settings)


TUNED: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(dict(_recipes()))
"""The settings by model and data set."""
