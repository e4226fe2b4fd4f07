"""Recipes: settings that were chosen for a model on a graph, and the choice of a run's recipe.

A run takes values that are not given from one recipe: that of its model and data set, or the one that it names. Published
recipes of models are next to the models (`dorylax.layers.registry`). Tuned recipes come from Luo, Shi and Wu, "Classic GNNs
are Strong Baselines", NeurIPS 2024, arXiv 2406.08993.

The paper tuned GCN, GAT and GraphSAGE for each graph; the settings are those of the commands that its authors published.
Their model is not quite the one here, so its figures need not come out to the tenth: theirs ends with a linear layer
after K convolutions, for which K + 1 convolutions stand here; drops the rows after each layer, and not the features;
adds its shortcut, always a product with a matrix, before the normalisation; and has a loop at each vertex in all models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dorylax.settings.errors import ConfigError, shown

DEFAULT = "default"
_PUBLISHED = "published"
_TUNED = "tuned"
PUBLISHED_FOR: Mapping[str, Mapping[str, Any]] = {
    "cora": {},
    "citeseer": {},
    "pubmed": {},
    # The built-in graph, which the shipped sweeps train on. Its features are no counts of words, whose rows have a sum.
    "communities": {"data.row_normalise": False},
}
"""The data sets whose recipe is the model's published one, with their changes of it."""

_FEWEST_EPOCHS = 500
_LEAST_WIDTH = 64
"""Over all heads."""


_TUNED_SOURCE = "Luo et al., NeurIPS 2024, arXiv 2406.08993, the authors' commands"

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
"""The tuned settings by model and data set."""


class Recipe(NamedTuple):
    """Settings of a model on a graph.

    Attributes:
        name: Name of the recipe for `train.recipe`; None for a user-defined model, which lacks a recipe.
        settings: Dotted keys of the configuration, with their values.
        source: Origin of the settings.
        task: The task that changed some of them; None if none did.
    """

    name: str | None
    settings: Mapping[str, Any]
    source: str
    task: str | None = None

    def line(self, values: Mapping[str, Any]) -> str:
        """Return the line of `dorylax train` on the recipe: `recipe: default (chosen on …), but train.epochs=5`.

        Args:
            values: Dotted values of the configuration.
        """
        if self.name is None:
            return "recipe: none, the model is your own: general defaults (docs/configuration.md)"
        changed = [f"{key}={shown(values[key])}" for key, usual in self.settings.items() if values.get(key) != usual]
        source = self.source.partition(". ")[0].removesuffix(".")
        by_task = "" if self.task is None else f"; as {self.task} changes it, docs/tasks.md"
        return f"recipe: {self.name} ({source}{by_task})" + (f", but {', '.join(changed)}" if changed else "")


def choose(
    name: str | None, model: str, data: str, published: Mapping[str, Any], source: str, *, of_vertices: bool
) -> Recipe:
    """Return the recipe of a run.

    Args:
        name: Value of `train.recipe`: a kind, `kind/data set` for the recipe of another data set, or None: the published
            one if the data set has one, else the default.
        model: Name of the model.
        data: Name of the data set, or a path.
        published: Settings of the model's published recipe, dotted; empty for a user-defined model.
        source: Their publication.
        of_vertices: Whether the task predicts for vertices.

    Raises:
        ConfigError: There is no such recipe.
    """
    if not published and name in (None, DEFAULT):
        return Recipe(None, {}, "")
    name = name or (_PUBLISHED if data in PUBLISHED_FOR else DEFAULT)
    kind, slash, other = name.partition("/")
    of = other if slash else data
    if published and name == DEFAULT:
        return default(published, source, of_vertices=of_vertices)
    if published and kind == _PUBLISHED and (not slash or of in PUBLISHED_FOR):
        return Recipe(name, {**published, **PUBLISHED_FOR.get(of, {})}, source)
    if kind == _TUNED and (model, of) in TUNED:
        return Recipe(f"{_TUNED}/{of}", TUNED[model, of], _TUNED_SOURCE)
    known = [DEFAULT]
    if published:
        known += [_PUBLISHED, *(f"{_PUBLISHED}/{one}" for one in PUBLISHED_FOR if one != data)]
    known += [_TUNED if one == data else f"{_TUNED}/{one}" for of_model, one in TUNED if of_model == model]
    raise ConfigError(
        f"train.recipe = {shown(name)}: {model} has no such recipe{'' if slash else f' for {data}'}: choose from "
        + ", ".join(known),
        "train.recipe",
    )


def default(published: Mapping[str, Any], source: str, *, of_vertices: bool) -> Recipe:
    """Return the recipe for graphs without their own: a model's published settings with a few changes.

    docs/log/2026-11.md ("Recipes") has the comparisons by which the changes were chosen, and their figures on other graphs.
    For tasks of other examples than vertices, only features stay as they are: a row that counts no words may well have the
    sum 0.
    """
    changed = {**published, "data.row_normalise": False}
    if not of_vertices:
        return Recipe(DEFAULT, changed, f"{source.partition('. ')[0].removesuffix('.')}, features as they are")
    changed["train.epochs"] = max(changed["train.epochs"], _FEWEST_EPOCHS)
    if (width := changed.get("model.hidden_features")) is not None:
        changed["model.hidden_features"] = max(width, _LEAST_WIDTH // changed.get("model.heads", 1))
    return Recipe(DEFAULT, changed, "chosen on several graphs, docs/recipes.md")
