"""Completes a configuration: the recipe < the task < the file < flags, then checks of every value.

The only module of `dorylax.config` that asks `dorylax.layers.registry`, and so imports Flax, once keys and types have
passed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, InstanceOf

from dorylax.config.check import checked, flatten, known
from dorylax.config.files import SCHEMA, overrides_from_file, overrides_from_yaml
from dorylax.config.optimizers import OPTIMIZERS, OptimizerConfig
from dorylax.config.recipe import Recipe, choose
from dorylax.config.schema import (
    KEYS,
    NULL_SAYS_SOMETHING,
    OWN,
    SECTIONS,
    DataConfig,
    ModelConfig,
    SingleConfig,
    TrainConfig,
    check_together,
    is_own,
)
from dorylax.config.tasks import SPECS, TaskConfig, TaskSpec
from dorylax.errors import InputError
from dorylax.near_matches import did_you_mean
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.settings.section import extra
from dorylax.settings.strict_yaml import dump
from dorylax.user_code.references import Arguments, is_reference, options_of
from dorylax.user_code.trust import FolderCode

# Values of options that a model's recipe leaves open.
_MODEL_DEFAULTS = {name: extra(field, "usual") for name, field in ModelConfig.options().items() if name != "name"}
_OPTIMIZER_OPTIONS = frozenset(name for spec in OPTIMIZERS.values() for name in spec.options)
_PLAIN = ("data", "task", "model", "optimizer", "train", "single")
"""Sections of every run."""
# Sections whose keys at their defaults are not part of a run's identity, so that new keys change no identity.
_QUIET = ("single", "pipeline", "tensor")
NO_IDENTITY = frozenset(key for key, field in KEYS.items() if extra(field, "external") or key.startswith("ray."))
"""Keys that do not change the trained model."""


class RunConfig(BaseModel):
    """One run, completely described. Make one with `resolve`, `from_yaml` or `load`, which check and fill in.

    Attributes:
        data: The graph, its features, labels and split.
        model: The model and its options.
        optimizer: The optimizer and its options.
        task: The task and its options.
        train: Epochs, seed, metrics and checkpoints.
        single: Execution of an epoch on one machine.
        pipeline: Servers, intervals and tensor tasks; None if no key of `pipeline` or `tensor` is given.
        code: Place of the user code, and whether it may run, if a run's folder names it; else None. No part of the run's
            identity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: DataConfig
    task: TaskConfig = TaskConfig()
    model: ModelConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    single: SingleConfig
    pipeline: PipelineConfig | None = None
    code: InstanceOf[FolderCode] | None = None

    @property
    def tensor(self) -> TensorConfig | None:
        """Settings of tensor tasks; None without a pipeline."""
        return None if self.pipeline is None else self.pipeline.tensor

    @property
    def ray(self) -> RayConfig | None:
        """Settings of Ray; None if no part of the run uses it."""
        return self.pipeline.ray if self.pipeline is not None and self.pipeline.on_ray else None

    @property
    def references(self) -> tuple[str, ...]:
        """The references to user code."""
        return tuple(name for name in (self.model.name, self.optimizer.name) if is_reference(name))

    def located(self, name: str) -> str:
        """Return the reference to load a model or an optimizer by: the present place of code that a folder names."""
        return name if self.code is None else self.code.located(name)

    def own_options(self) -> dict[str, dict[str, Any]]:
        """Return the options of each of `references`, with their defaults."""
        model, optimizer = self.model.name, self.optimizer.name
        found = {model: _model(model, self.code).options, optimizer: _tuned(optimizer, self.code)}
        return {name: dict(found[name]) for name in self.references}

    def recipe(self) -> Recipe:
        """Return the recipe of values that were not given."""
        found = _model(self.model.name, self.code)
        return _recipe(self.train.recipe, self.model.name, found, self.data.name, self.task.name)

    @classmethod
    def resolve(cls, *overrides: Mapping[str, Any], code: FolderCode | None = None) -> RunConfig:
        """Fill in missing values from the task's changes, the recipe of model and data set, and the general defaults.

        Args:
            overrides: Values of the user, dotted (`{"train.epochs": 5}`) or nested (`{"train": {"epochs": 5}}`); the last
                mapping wins.
            code: The user code that a run's folder names.

        Returns:
            A configuration with a value for every key of the chosen model and optimizer.

        Raises:
            ConfigError: An unknown key, model or optimizer; a value of the wrong type or out of bounds; an option that the
                chosen model or optimizer does not use; or settings that exclude each other.
            InputError: User code that a folder names is not trusted, and only its execution would give its options.
        """
        given: dict[str, Any] = {}
        for mapping in overrides:
            given.update(checked(mapping))

        values = {
            key: field.default
            for key, field in KEYS.items()
            if field.default is not None and key.partition(".")[0] in _PLAIN
        }
        name = given.get("model.name", values["model.name"])
        found = _model(name, code)
        used, task = found.options, given.get("task.name")
        recipe = _recipe(given.get("train.recipe"), name, found, given.get("data.name", values["data.name"]), task)
        optimizer = ({**values, **recipe.settings} | given)["optimizer.name"]
        tuned = _tuned(optimizer, code)
        # Options of the recipe's optimizer do not apply to another optimizer.
        foreign = {f"optimizer.{option}" for option in _OPTIMIZER_OPTIONS - tuned.keys()}
        values.update({f"model.{option}": default for option, default in used.items()})
        values.update({f"optimizer.{option}": value for option, value in tuned.items()})
        values.update({key: value for key, value in recipe.settings.items() if key not in foreign})
        if task is not None:
            values.update({f"task.{option}": default for option, default in SPECS[task].options.items()})

        for key in given:
            section, _, option = key.partition(".")
            if (section == "model" and option in _MODEL_DEFAULTS.keys() - used.keys()) or (
                is_own(key) and not is_reference(name)
            ):
                raise ConfigError(f"{key} is not an option of model {name}, whose options are {_listed(used)}", key)
            if section == "optimizer" and option in _OPTIMIZER_OPTIONS - tuned.keys():
                own = _listed(tuned) if tuned else "only those of every optimizer"
                raise ConfigError(f"{key} is not an option of optimizer {optimizer}, whose options are {own}", key)
        if is_reference(name):
            _check_arguments(name, [key.rpartition(".")[2] for key in given if is_own(key)], used, code)
        values.update(given)
        values["train.recipe"] = recipe.name
        if values.get("optimizer.schedule") is not None and values.get("optimizer.schedule_epochs") is None:
            values["optimizer.schedule_epochs"] = values["train.epochs"]
        plain: dict[str, Any] = {name: SECTIONS[name](**_section(name, values)) for name in _PLAIN}
        config = cls(
            **plain,
            pipeline=_pipeline(values),
            code=code if code is not None and any(map(code.names, filter(is_reference, (name, optimizer)))) else None,
        )
        check_together(config.train, config.single, config.pipeline, config.task)
        return config

    @classmethod
    def from_yaml(cls, text: str, name: str = "the configuration", *, trust: bool = False) -> RunConfig:
        """Read a YAML document, called `name` in errors; otherwise as `load`."""
        given, code = overrides_from_yaml(text, name, trust=trust)
        return cls.resolve(given, code=code)

    @classmethod
    def load(cls, path: Path, *, trust: bool = False) -> RunConfig:
        """Read a YAML file, for instance a run directory's `config.yaml`.

        Args:
            path: The file.
            trust: Whether its user code may run if a run wrote the file (docs/command-line.md#trust).

        Raises:
            ConfigError: As for `resolve`.
            InputError: A run wrote the file, it names user code, and `trust` is false.
        """
        given, code = overrides_from_file(path, trust=trust)
        return cls.resolve(given, code=code)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return nested dicts of plain values, without unused options."""
        return {
            section: {
                name: value
                for name, value in values.to_dict().items()
                if value is not None or section in NULL_SAYS_SOMETHING
            }
            for section in SECTIONS
            if (values := getattr(self, section)) is not None and (section != "task" or values.name is not None)
        }

    def dotted(self) -> dict[str, Any]:
        """Return `to_dict` with dotted keys, in order."""
        return flatten(self.to_dict())

    def to_yaml(self) -> str:
        """Return YAML that `from_yaml` reads back to the same values."""
        return dump({"schema": SCHEMA, **self.to_dict()})

    def unverified(self) -> RunConfig:
        """Return the same run without verification of its data."""
        return self.model_copy(update={"data": self.data.model_copy(update={"verify": False})})

    def key(self) -> str:
        """Return the identity of the run: 12 hex digits of the SHA-256 of the canonical JSON.

        It excludes null values, `NO_IDENTITY`, and values of `single`, `pipeline` and `tensor` at their defaults, so that
        new keys change no identity; `pipeline.mode` shows that there is a pipeline. It excludes `tensor.placement` if that
        is "functions", the first placement, or without effect.
        """
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:12]

    def canonical_json(self) -> str:
        """Return the values that `key` hashes, dotted and sorted, as compact JSON."""
        values = {
            key: value for key, value in self.dotted().items() if value is not None and _distinguishes(key, value)
        }
        if self.pipeline is None or (self.pipeline.clock == "real" and self.pipeline.tensor.backend == "inline"):
            values.pop("tensor.placement", None)
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


class _OfModel(NamedTuple):
    """Options of a model with their defaults, and its published recipe, dotted, with the source."""

    options: Mapping[str, Any]
    published: Mapping[str, Any]
    source: str


def _model(name: Any, code: FolderCode | None) -> _OfModel:
    if is_reference(name):
        return _OfModel(_own("model.name", name, (), _MODEL_DEFAULTS, code), {}, "")
    # By name at run time: importing the layers imports Flax, and they stand above plain data such as this.
    models: Mapping[str, Any] = import_module("dorylax.layers.registry").MODELS
    spec = models[known("model.name", name, models)]
    used = {option: _MODEL_DEFAULTS[option] for option in spec.options & _MODEL_DEFAULTS.keys()}
    return _OfModel(used, spec.recipe, spec.source)


def _recipe(name: str | None, model: str, found: _OfModel, data: str, task: str | None) -> Recipe:
    """Return the recipe of a model on a data set, with the changes of the task."""
    spec = TaskSpec() if task is None else SPECS[task]
    recipe = choose(name, model, data, found.published, found.source, of_vertices=spec.of_vertices)
    changed = {
        key: value
        for key, value in spec.recipe.items()
        if not key.startswith("model.") or key.removeprefix("model.") in found.options
    }
    return recipe._replace(settings={**recipe.settings, **changed}, task=task) if changed else recipe


def _tuned(name: Any, code: FolderCode | None) -> Mapping[str, Any]:
    """Return the options of an optimizer beyond the common ones, with their defaults."""
    if is_reference(name):
        usual = {option: value for spec in OPTIMIZERS.values() for option, value in spec.options.items()}
        return _own("optimizer.name", name, ("learning_rate",), usual, code)
    return OPTIMIZERS[known("optimizer.name", name, OPTIMIZERS)].options


def _check_arguments(name: str, given: Collection[str], options: Mapping[str, Any], code: FolderCode | None) -> None:
    """Refuse unknown arguments of a user-defined model (`model.options` in `given`), and a model with a missing argument."""
    if code is not None and code.options is not None and code.names(name):
        return  # the folder's code is not executed
    found = Arguments.of(name if code is None else code.located(name))
    for argument in given:
        key = f"{OWN}.{argument}"
        if argument in options:
            raise ConfigError.of(key, f"is a key of its own: give model.{argument}")
        if argument not in found.named and not found.further:
            raise ConfigError.of(key, f"is not an argument of {name}: {did_you_mean(argument, found.named)}")
    if (missing := found.missing((*given, *options, *found.filled_in(given)))) is not None:
        remedy = f"set {OWN}.{missing}, give it a default, or call a width of the data in_features or out_features"
        raise ConfigError.of("model.name", f"= {name!r} needs {missing!r}: {remedy}")


def _own(
    key: str, name: str, given: tuple[str, ...], usual: Mapping[str, Any], code: FolderCode | None
) -> dict[str, Any]:
    """Return the options of a user-defined model or optimizer; its defaults win if a configuration can hold them.

    Options that a folder records are taken from it, without executing the code.
    """
    if code is not None and code.options is not None and code.names(name):
        if name not in code.options:
            raise ConfigError(
                f"{key} = {name!r}: {code.named_by} does not say which options it has, since an earlier version wrote it: "
                "give the command that made the folder once more, which repeats no run that is done",
                key,
            )
        return {option: value for option, value in code.options[name].items() if option in usual}
    try:
        found = options_of(name if code is None else code.located(name), given, usual)
    except InputError as error:
        raise ConfigError(f"{key} = {error}", key) from None
    return {
        option: default if isinstance(default, bool | int | float | str) else usual[option]
        for option, default in found.items()
    }


def _distinguishes(key: str, value: Any) -> bool:
    """Return whether a key with this value is part of a run's identity."""
    if key in NO_IDENTITY:
        return False
    quiet = key.partition(".")[0] in _QUIET and key != "pipeline.mode"
    return not (quiet and value == ("functions" if key == "tensor.placement" else KEYS[key].default))


def _pipeline(values: Mapping[str, Any]) -> PipelineConfig | None:
    """Return the sections `pipeline`, `tensor` and `ray`; None if no key of the first two is given."""
    given, tensor = _section("pipeline", values), _section("tensor", values)
    made = PipelineConfig(**given, tensor=TensorConfig(**tensor), ray=RayConfig(**_section("ray", values)))
    return made if given or tensor else None


def _section(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given values of a section, by option."""
    return {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")}


def _listed(options: Iterable[str]) -> str:
    names = set(options)
    order = [name for section in (ModelConfig, OptimizerConfig) for name in section.model_fields if name in names]
    return ", ".join(order)
