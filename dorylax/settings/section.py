"""A section of settings: one frozen model, which is the Python API, a part of YAML files and of the command line."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from dorylax.near_matches import choose, close
from dorylax.settings.errors import ConfigError, shown
from dorylax.settings.retired import RETIRED
from dorylax.settings.strict_yaml import Document, parse, read_text
from dorylax.settings.words import core, expected, nullable, problem


def _path_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
"""JAX takes seeds as int32."""
Text = Annotated[str, Field(min_length=1)]
if TYPE_CHECKING:
    PathText = str | os.PathLike[str]
else:
    PathText = Annotated[str, BeforeValidator(_path_text), Field(min_length=1)]
"""The path of a file or a folder, converted to text."""

CONTINUABLE: dict[str, Any] = {"continuable": True}
"""`json_schema_extra` of a setting that affects no finished epoch, so that a continued run may change it."""
EXTERNAL: dict[str, Any] = {**CONTINUABLE, "external": True}
"""`json_schema_extra` of a setting that does not change the trained model: admission, place, traces, and recipes."""

_STRICT: ConfigDict = {"strict": True, "allow_inf_nan": False}
S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """Base class of sections: frozen, without unknown keys, silent conversions ("1" is not 1), NaN or infinity.

    Subclasses give each setting a type with its bounds, a default and a description, from which errors, `help` and
    docs/configuration.md follow. A validator (mode "after") that raises ConfigError checks settings against each other.

    Raises:
        ConfigError: An unknown key, a wrong value, or values that exclude each other; names the dotted key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), **_STRICT)
    section: ClassVar[str] = ""
    """Prefix of the keys, without the dot."""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise self._refusal(error) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """List the settings in the class's docstring."""
        super().__pydantic_init_subclass__(**options)
        lines = [
            f"    {name}: {field.description} ({expected(field)}{' or None' if nullable(field) else ''})."
            for name, field in cls.options().items()
        ]
        cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", "Attributes:", *lines])

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the values that differ from their defaults, for `repr`."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                yield name, value

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return name → field of the settings in order, without nested sections."""
        return {name: field for name, field in cls.model_fields.items() if not _is_section(field)}

    @classmethod
    def key(cls, option: str) -> str:
        """Return the dotted key of a setting."""
        return f"{cls.section}.{option}" if cls.section else option

    @classmethod
    def check(cls, option: str, value: Any) -> None:
        """Check the type and bounds of one value; raise ConfigError: `train.epochs must be ≥ 1, got 0`."""
        try:
            _adapter(cls, option).validate_python(value)
        except ValidationError as error:
            raise cls._wrong(option, error.errors()[0]) from None

    @classmethod
    def unknown(cls, option: str) -> ConfigError:
        """Return the error for a setting that does not exist."""
        key, names = cls.key(option), list(cls.options())
        if (instead := RETIRED.get(key)) is not None:
            return ConfigError(f"{key} is no longer a setting: {instead}", key)
        near = [cls.key(name) for name in close(option, names)]
        return ConfigError(f"unknown key {shown(key)}: {choose(near, map(cls.key, names))}", key)

    @classmethod
    def load(cls: type[S], path: Path | None, given: Mapping[str, Any]) -> S:
        """Read the settings of a YAML file.

        Args:
            path: File with settings of this section alone; None for no file.
            given: Further settings, which override those of the file.

        Raises:
            ConfigError: The file cannot be read, or a setting is wrong; names the file and line of the setting.
            OSError: The machine fails to read the file.
        """
        document = Document("", None) if path is None else parse(read_text(path), str(path))
        values = {} if document.value is None else document.value
        example = next(iter(cls.options()))
        document.need(isinstance(values, dict), f"must hold settings such as {example}, got {shown(values)}")
        try:
            return cls(**{**values, **given})
        except ConfigError as error:
            option = error.key.removeprefix(cls.key(""))
            if option not in values.keys() - given.keys():
                raise
            raise error.at(document.where(option)) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in order, as YAML may carry them."""
        values = {name: getattr(self, name) for name in self.options()} | (self.model_extra or {})
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def model_copy(self: S, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> S:  # noqa: ARG002
        """Return a checked copy with other values; values derived from them are derived again."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**given | dict(update or {}))

    @classmethod
    def _refusal(cls, error: ValidationError) -> Exception:
        """Return the first of pydantic's errors, in this project's words."""
        first = error.errors()[0]
        raised = first.get("ctx", {}).get("error")
        if isinstance(raised, ConfigError):
            return raised
        option = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            return cls.unknown(option)
        field = cls.model_fields[option]
        if _is_section(field):
            wanted = core(field)
            name = f"{wanted.__module__}.{wanted.__name__}"
            return TypeError(f"{option} must be a {name}, got {type(first['input']).__name__}")
        return cls._wrong(option, first)

    @classmethod
    def _wrong(cls, option: str, error: Any) -> ConfigError:
        """Return the error for one wrong value, with the message of its validator if that raised one."""
        raised = error.get("ctx", {}).get("error")
        said = problem(cls.model_fields[option], error["input"], error["type"]) if raised is None else str(raised)
        return ConfigError.of(cls.key(option), said)


def extra(field: FieldInfo, name: str) -> Any:
    """Return a further property of a setting, from its `json_schema_extra`; None if it has none."""
    found = field.json_schema_extra
    return found.get(name) if isinstance(found, dict) else None


def _is_section(field: FieldInfo) -> bool:
    return isinstance(core(field), type) and issubclass(core(field), Section)


@functools.cache
def _adapter(section: type[Section], option: str) -> TypeAdapter[Any]:
    return TypeAdapter(section.model_fields[option].rebuild_annotation(), config=_STRICT)
