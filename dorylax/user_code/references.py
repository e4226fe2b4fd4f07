"""References to user-defined models and optimizers: `my_models.py:MyGNN` or `package.module:MyGNN`.

A process executes a file once, as a separate module. cloudpickle ships the module by value, so an optimizer reaches servers
without the file. The file is read once and compiled from these bytes; cached bytecode could belong to other code.
`dorylax.user_code.trust` handles references in run directories.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dorylax.errors import InputError
from dorylax.user_code.lines import user_line, user_line_noted

_SHA256: dict[str, str] = {}
"""SHA-256 of the executed files, by module name."""

_FILLED_IN: Mapping[str, tuple[str, ...]] = {
    "in_features": ("in_features", "features", "num_features", "in_channels", "in_dim"),
    "out_features": ("out_features", "classes", "num_classes", "out_channels", "out_dim"),
    "rngs": ("rngs",),
}
"""Values that the data and the run supply, and the usual names of their arguments, the likeliest first."""


def is_reference(name: object) -> bool:
    """Whether a name is a reference to user code."""
    return isinstance(name, str) and ":" in name


def place_of(reference: str) -> str:
    """The file or module of a reference: `FILE.py` or `MODULE`."""
    return reference.rpartition(":")[0]


def is_file(place: str) -> bool:
    """Whether a place is a file instead of a module."""
    return place.endswith(".py")


def executed_sha256(place: str) -> str | None:
    """Hexadecimal SHA-256 of a file as this process executed it; None for modules and for other files."""
    return _SHA256.get(_module_name(Path(place).resolve())) if is_file(place) else None


def load_reference(reference: str) -> Any:
    """Return the object of a reference.

    Args:
        reference: `FILE.py:NAME` or `MODULE:NAME`.

    Raises:
        InputError: The file, module or name does not exist, or the object is not callable.
        Exception: Executing the file or the module raises it.
    """
    place, _, name = reference.rpartition(":")
    try:
        with user_line_noted():
            module = _from_file(reference, Path(place)) if is_file(place) else importlib.import_module(place)
    except Exception as error:
        if isinstance(error, InputError) or user_line(error) is not None:  # the error comes from user code
            raise
        raise InputError(f"{reference!r} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        names = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise InputError(f"{reference!r}: {place} has no {name!r} to call, but {', '.join(names) or 'nothing'}")
    return found


class Arguments(NamedTuple):
    """The arguments that a class or function takes by keyword.

    Attributes:
        named: Default value of each argument, or `inspect.Parameter.empty`.
        further: Whether it takes any other arguments (`**options`).
    """

    named: Mapping[str, Any]
    further: bool

    @classmethod
    def of(cls, reference: str) -> Arguments:
        """Read the signature of a reference. Raises as `load_reference`."""
        call = load_reference(reference)
        is_class = inspect.isclass(call)
        if is_class and call.__init__ is object.__init__:
            return cls({}, further=False)
        # For a class, read __init__: the metaclass of nnx.Module takes any arguments.
        signature = inspect.signature(call.__init__ if is_class else call)
        parameters = list(signature.parameters.values())[is_class:]  # without self
        by_name = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        return cls({one.name: one.default for one in by_name}, any(one.kind is one.VAR_KEYWORD for one in parameters))

    def missing(self, given: Collection[str]) -> str | None:
        """The first argument without a default and without a given value."""
        needed = (name for name, default in self.named.items() if default is inspect.Parameter.empty)
        return next((name for name in needed if name not in given), None)

    def filled_in(self, given: Collection[str]) -> dict[str, str]:
        """Return argument → value (`in_features`, `out_features`, `rngs`) that the data and the run supply to a model.

        Arguments that the user gives are left out.
        """
        found = {
            next((name for name in names if name in self.named), role if self.further else ""): role
            for role, names in _FILLED_IN.items()
        }
        return {name: role for name, role in found.items() if name and name not in given}


def options_of(reference: str, given: Collection[str], known: Collection[str]) -> dict[str, Any]:
    """The options that a class or function takes by keyword, with their defaults; `inspect.Parameter.empty` without one.

    Args:
        reference: Reference for `load_reference`.
        given: Names of the arguments of every optimizer; empty for a model.
        known: Names of options.

    Raises:
        InputError: The reference is invalid, or an optimizer does not take the given arguments or needs unknown ones.
    """
    found = Arguments.of(reference)
    if found.further:
        return {}
    if lacking := [name for name in given if name not in found.named]:
        raise InputError(f"{reference!r} is called with {', '.join(given)}, but takes no {lacking[0]}")
    if given and (missing := found.missing((*given, *known))) is not None:
        raise InputError(
            f"{reference!r} needs {missing!r}, which no configuration has: give it a default, or call it one of "
            f"{', '.join(known)}"
        )
    return {name: default for name, default in found.named.items() if name in known}


def _from_file(reference: str, path: Path) -> ModuleType:
    import cloudpickle

    try:
        file = path.resolve(strict=True)
        name = _module_name(file)
        if name in sys.modules:
            return sys.modules[name]
        content = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{reference!r}: there is no file {path} in {Path.cwd()}") from None
    if b"\0" in content:
        raise InputError(f"{reference!r}: {path} has NUL bytes and is no Python source")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # of every file that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # The loader of the module would read the file again, or its cached bytecode.
        exec(compile(content, file, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    _SHA256[name] = hashlib.sha256(content).hexdigest()
    cloudpickle.register_pickle_by_value(module)
    return module


def _module_name(file: Path) -> str:
    return f"dorylax_own_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
