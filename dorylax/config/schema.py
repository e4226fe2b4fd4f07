"""Which keys a run has: their types, bounds, defaults and meanings (docs/configuration.md shows this file as tables).

A `model.*` or `optimizer.*` option that only some models or optimizers use is None where the chosen one does not use
it. Which model uses which option, and with which default, is `dorylax.layers.registry`'s to say; for optimizers,
`dorylax.config.optimizers`'.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import annotated_types
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
SEED_LIMIT = 2**31
"""Seeds are below this: JAX takes them as int32."""
Seed = Annotated[int, Field(ge=0, lt=SEED_LIMIT)]


class Section(BaseModel):
    """What all sections share: frozen, no unknown keys, no silent conversion ("1" is not 1), no NaN or infinity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False, protected_namespaces=()
    )


class DataConfig(Section):
    """The graph, its features, labels and split."""

    name: Annotated[str, Field(min_length=1)] = Field(
        "communities", description="a built-in or downloadable data set (`dorylax datasets`), or the path of an `.npz`"
    )
    size: str | None = Field(None, description="size of a built-in data set; null: its smallest ordinary size")
    row_normalise: bool = Field(False, description="scale each vertex's features to sum to 1")
    split_seed: Seed = Field(0, description="seed of the split of data that come without masks")


class ModelConfig(Section):
    """The model. An option that the model does not use may not be set."""

    name: str = Field(
        "gcn", description="which model: one of those below, or your own as `FILE.py:CLASS` or `MODULE:CLASS`"
    )
    hidden_features: Count | None = Field(
        None, description="width of the hidden layers, per head where there are heads"
    )
    num_layers: Count | None = Field(
        None, description="number of layers, the output layer included unless `jk` adds one; of gcnii, its convolutions"
    )
    dropout: Fraction | None = Field(None, description="probability that an input of a layer is dropped in training")
    heads: Count | None = Field(None, description="attention heads of the hidden layers")
    output_heads: Count | None = Field(None, description="attention heads of the output layer, averaged")
    attention_dropout: Fraction | None = Field(
        None, description="probability that an attention coefficient is dropped in training"
    )
    norm: Literal["none", "layer", "rms", "batch", "graph", "pair"] | None = Field(
        None, description="normalisation after each hidden layer"
    )
    residual: bool | None = Field(None, description="add a layer's input to its output")
    jk: Literal["none", "concat", "max"] | None = Field(
        None, description="jumping knowledge: how the rows of all layers are joined for a linear output layer"
    )
    aggregation: Literal["mean", "sum", "max"] | None = Field(None, description="how neighbours are aggregated")
    train_epsilon: bool | None = Field(None, description="learn the weight of a vertex's own features, from 0")
    share_weights: bool | None = Field(
        None, description="one matrix for both ends of an edge (gatv2), for a layer's rows and the first rows (gcnii)"
    )
    num_propagations: Count | None = Field(None, description="number of propagation steps")
    alpha: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="share of a vertex's first rows in each propagation"
    )
    theta: Positive | None = Field(None, description="strength of the matrices, log(theta/l + 1) in layer l")
    edge_dropout: Fraction | None = Field(
        None, description="probability that an edge is dropped from a propagation in training"
    )


class OptimizerConfig(Section):
    """The optimizer. An option that the optimizer does not use may not be set."""

    name: str = Field(
        "adam",
        description="which optimizer: one of those below, or a function of your own as `FILE.py:NAME` or `MODULE:NAME`",
    )
    learning_rate: Positive = Field(0.01, description="step size")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0, description="λ: adds λ·w to the gradient (the L2 penalty λ/2·‖w‖²); with adamw and lamb decoupled from it"
    )
    weight_decay_on: Literal["all", "first"] = Field(
        "all", description="decay all parameters or the first layer's only"
    )
    momentum: Fraction | None = Field(None, description="share of the last step that is kept")
    beta1: Fraction | None = Field(None, description="decay rate of the gradient's mean")
    beta2: Fraction | None = Field(None, description="decay rate of the squared gradient's mean")
    epsilon: Positive | None = Field(None, description="added to the denominator")


class TrainConfig(Section):
    """How long to train, from which seed, and what to watch."""

    epochs: Count = Field(200, description="number of passes over the graph, one update each")
    seed: Seed = Field(0, description="seed of the initial parameters and of dropout")
    eval_every: Count = Field(1, description="epochs between evaluations")
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="stop when validation accuracy reaches this; null: never"
    )
    patience: Count | None = Field(
        None, description="stop after this many epochs without a better validation accuracy; null: never"
    )
    checkpoint_every: Annotated[int, Field(ge=0)] = Field(
        0, description="epochs between checkpoints; 0: only when interrupted and at the end"
    )


class SingleConfig(Section):
    """How one machine computes an epoch."""

    optimize: bool = Field(
        True,
        description="train with the optimised program (`dorylax.program`); "
        "false: plain `jax.value_and_grad` of the model, the reference",
    )
    order: Literal["auto", "given", "community"] = Field(
        "auto",
        description="order of vertices in memory: as given, or by community, which gathers faster where rows do not fit "
        "in cache; auto: see below",
    )
    gathered: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="how an epoch stores the rows that it sums over neighbours: bfloat16 is half the bytes to read, and "
        "rounds; see below",
    )
    memory: Literal["check", "ignore"] = Field(
        "check",
        description="what to do where a run will need more memory than there is: check: refuse it before it begins; "
        "ignore: try",
    )


class PipelineSection(Section):
    """How training is spread over servers and intervals. There is a pipeline where one of these keys is given.

    `dorylax.pipeline.config.PipelineConfig` has the same keys and defaults, and checks them against each other.
    """

    servers: Count = Field(1, description="graph servers; each owns a part of the vertices")
    intervals: Count = Field(8, description="intervals of each server, of equal numbers of vertices")
    mode: Literal["no-pipe", "pipe", "async"] = Field(
        "pipe",
        description="no-pipe: each server one task at a time; pipe: tasks overlap, epochs do not; async: intervals may be "
        "up to `pipeline.staleness` epochs apart",
    )
    staleness: Annotated[int, Field(ge=0)] | None = Field(
        None, description="S of async: an interval may start epoch e while e ≤ min_epoch + S; null: 0 with async"
    )
    update: Literal["per_epoch", "per_interval"] | None = Field(
        None,
        description="one optimizer step per epoch, or one per interval and epoch (async only); null: per_epoch",
    )
    interval_step_scaling: bool = Field(
        True, description="scale the steps of per_interval so that those of an epoch move as far as one of per_epoch"
    )
    sync_every: Count = Field(
        1, description="gradients that the first parameter server forwards at once to the other ones"
    )
    parameter_servers: Count = Field(1, description="servers that hold the weights, all of them whole")
    clock: Literal["real", "virtual"] = Field(
        "real", description="real: wall time; virtual: tasks compute, and take the time that the cluster's model says"
    )
    cluster: Annotated[str, Field(min_length=1)] = Field(
        "default",
        description="a cluster's name, or a YAML file that describes one: its speeds on the virtual clock, its prices for "
        "the bill; not of inline tasks on the real clock",
    )
    partitioner: Literal["metis", "ldg", "range", "random"] = Field(
        "metis", description="how vertices are spread over servers"
    )
    balance: Literal["vertices", "edges"] = Field("vertices", description="what every server has equally many of")
    partition: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="folder of a saved partition, in place of `partitioner` and `balance`"
    )
    graph_threads: Count | None = Field(
        None,
        description="threads of each server's graph tasks; null: its share of the cores, on the virtual clock the cluster's",
    )
    edge_chunk: Count = Field(65536, description="edges that an edge stage computes at once")
    reorder: bool = Field(
        False, description="with async, allow the pass `reorder`, which mixes weight versions of neighbours"
    )
    switch_margin: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="go on synchronously once validation accuracy is within this fraction of `train.target_accuracy` "
        "(async only); null: never",
    )


class TensorSection(Section):
    """Where the tensor tasks of a pipeline run. There is a pipeline where one of these keys is given.

    `dorylax.serverless.config.TensorConfig` has the same keys and defaults, and checks them against each other.
    """

    backend: Literal["inline", "local", "emulator", "aws"] = Field(
        "inline",
        description="where tensor tasks run; inline: on threads of this process; local: in worker processes, which stand "
        "for a cloud's containers; emulator: in functions that AWS's Runtime Interface Emulator runs on this machine; "
        "aws: in a function of AWS Lambda",
    )
    workers: Count | None = Field(
        None, description="processes of local, sandboxes of emulator and aws; null: half of the cores, 100 of aws"
    )
    slots: Count | None = Field(
        None,
        description="calls of each graph server at a time; null: inline its share of the cores, on the virtual clock the "
        "cluster's functions; elsewhere its share of the workers",
    )
    autotune: bool = Field(
        False, description="fewer calls at a time while graph tasks queue up, more while they drain (Dorylus)"
    )
    attempts: Count = Field(10, description="calls of one task that may fail before the run does")
    deadline: Annotated[float, Field(gt=0)] | None = Field(
        None, description="seconds after which a call counts as failed; null: never inline, 900 elsewhere"
    )
    relaunch: Annotated[float, Field(gt=1)] = Field(
        5.0,
        description="call a task again beside a call that has taken this many times the mean of its stage, and take "
        "the first answer",
    )
    relaunches: Annotated[int, Field(ge=0)] = Field(1, description="relaunches of a task at most; 0: never")
    transport: Literal["ipc", "tcp"] = Field(
        "ipc", description="how workers fetch data; tcp: loopback, encrypted by keys made for the run"
    )
    latency: Annotated[float, Field(ge=0)] = Field(
        0.0, description="seconds that each request of a worker takes besides its bytes"
    )
    bandwidth: Annotated[float, Field(gt=0)] | None = Field(
        None, description="bytes per second of each worker; null: as fast as it goes"
    )
    cold_start: Annotated[float, Field(ge=0)] = Field(0.0, description="seconds that a worker takes longer to start")
    streaming: bool = Field(False, description="workers compute on the first half of the rows while the second arrives")
    function: str = Field("dorylax", description="of aws: its name, name:alias or ARN")
    region: str | None = Field(None, description="of aws: where the function is; null: as boto3 finds it")
    host: str | None = Field(None, description="of aws: the address of this machine that functions dial")
    artefacts: str | None = Field(
        None, description="of aws: s3://bucket/prefix, where stages lie; null: graph servers offer them"
    )


SECTIONS: dict[str, type[Section]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "optimizer": OptimizerConfig,
    "train": TrainConfig,
    "single": SingleConfig,
    "pipeline": PipelineSection,
    "tensor": TensorSection,
}
NULL_SAYS_SOMETHING = ("data", "train", "pipeline", "tensor")
"""Sections in which null is a value like others; in the rest it means that an option is not used."""


def keys() -> Iterator[tuple[str, FieldInfo]]:
    """Every dotted key in order, with its field."""
    for section, model in SECTIONS.items():
        for name, field in model.model_fields.items():
            yield f"{section}.{name}", field


def nullable(field: FieldInfo) -> bool:
    """Whether the field's type admits None."""
    return type(None) in typing.get_args(field.annotation)


def expected(field: FieldInfo) -> str:
    """What a field takes, in words: `a whole number ≥ 1`, `one of none, layer, rms`."""
    return " ".join(part for part in (type_words(field), bound_words(field)) if part)


def type_words(field: FieldInfo) -> str:
    """The type part of `expected`."""
    annotation = _core(field)
    if typing.get_origin(annotation) is Literal:
        return f"one of {', '.join(typing.get_args(annotation))}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words[annotation]


def bound_words(field: FieldInfo) -> str:
    """The bounds part of `expected`, empty where there are none: `≥ 0 and < 1`."""
    signs: dict[type, tuple[str, str]] = {
        annotated_types.Ge: ("≥", "ge"),
        annotated_types.Gt: (">", "gt"),
        annotated_types.Le: ("≤", "le"),
        annotated_types.Lt: ("<", "lt"),
    }
    parts = []
    for entry in _constraints(field):
        if type(entry) in signs:
            sign, attribute = signs[type(entry)]
            parts.append(f"{sign} {getattr(entry, attribute)}")
    return " and ".join(parts)


def choices(field: FieldInfo) -> tuple[str, ...]:
    """What a field with a closed set of values takes; empty for all others."""
    annotation = _core(field)
    return typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()


def _core(field: FieldInfo) -> Any:
    """The field's type without `| None` and without constraints."""
    annotation: Any = field.annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation


def _constraints(field: FieldInfo) -> Iterator[Any]:
    """The constraints of a field, wherever they are written: on it, or on the part of `X | None` that is X."""
    found = list(field.metadata)
    for part in typing.get_args(field.annotation):
        if typing.get_origin(part) is Annotated:
            for entry in typing.get_args(part)[1:]:
                found.extend(entry.metadata if isinstance(entry, FieldInfo) else [entry])
    for entry in found:
        if isinstance(entry, annotated_types.GroupedMetadata):
            yield from entry
        else:
            yield entry
