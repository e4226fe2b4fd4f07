"""References to models and optimizers that the user wrote: `my_models.py:MyGNN` or `package.module:MyGNN`.

A file is executed once in a process, as a module of its own that cloudpickle ships by value, so that an optimizer reaches
servers that have no such file. It is read once, and what is executed is what was read: not the bytecode that may lie beside
it, which can be of something else. References that a folder names are `dorylax.user_code.trust`'s.
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
from typing import Any, NamedTuple, final

from dorylax.errors import DorylaxError
from dorylax.user_code.lines import user_line, user_line_noted


@final
class UserCodeError(DorylaxError, ValueError):
    """A reference that leads nowhere, or to what cannot be used."""


_SHA256: dict[str, str] = {}
"""Of what was executed of files, by the names of their modules."""

_FILLED_IN: Mapping[str, tuple[str, ...]] = {
    "in_features": ("in_features", "features", "num_features", "in_channels", "in_dim"),
    "out_features": ("out_features", "classes", "num_classes", "out_channels", "out_dim"),
    "rngs": ("rngs",),
}
"""What every model needs of the data and of the run, and the names that arguments for it have, the likeliest first."""


def is_reference(name: object) -> bool:
    """Whether a name is a reference to something of the user's own."""
    return isinstance(name, str) and ":" in name


def place_of(reference: str) -> str:
    """What a reference names something in: `FILE.py` or `MODULE`."""
    return reference.rpartition(":")[0]


def is_file(place: str) -> bool:
    """Whether a place is a file, and not a module."""
    return place.endswith(".py")


def executed_sha256(place: str) -> str | None:
    """Of what this process has executed of a file, in hexadecimal digits; None where it has not, and for a module."""
    return _SHA256.get(_module_name(Path(place).resolve())) if is_file(place) else None


def load_reference(reference: str) -> Any:
    """What a reference names.

    Args:
        reference: `FILE.py:NAME` or `MODULE:NAME`.

    Raises:
        UserCodeError: there is no such file, module or name, or it cannot be called.
        Exception: what executing the file or the module raises.
    """
    place, _, name = reference.rpartition(":")
    try:
        with user_line_noted():
            module = _from_file(reference, Path(place)) if is_file(place) else importlib.import_module(place)
    except Exception as error:
        if isinstance(error, UserCodeError) or user_line(error) is not None:  # it is the user's own code that fails
            raise
        raise UserCodeError(f"{reference!r} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        names = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise UserCodeError(f"{reference!r}: {place} has no {name!r} to call, but {', '.join(names) or 'nothing'}")
    return found


class Arguments(NamedTuple):
    """The arguments that a class or function takes by keyword.

    Attributes:
        named: Default by name, `inspect.Parameter.empty` without one.
        further: Whether it takes others, too (`**options`).
    """

    named: Mapping[str, Any]
    further: bool

    @classmethod
    def of(cls, reference: str) -> Arguments:
        """Reads the signature of a reference.

        Raises:
            UserCodeError, Exception: as `load_reference`.
        """
        call = load_reference(reference)
        if call.__init__ is object.__init__ and inspect.isclass(call):
            return cls({}, further=False)
        # Of a class its own __init__: metaclasses, as that of nnx.Module, take anything.
        signature = inspect.signature(call.__init__ if inspect.isclass(call) else call)
        parameters = list(signature.parameters.values())[inspect.isclass(call) :]  # without self
        by_name = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        return cls({one.name: one.default for one in by_name}, any(one.kind is one.VAR_KEYWORD for one in parameters))

    def missing(self, given: Collection[str]) -> str | None:
        """The first without a default that is not given."""
        lacks = (name for name, default in self.named.items() if default is inspect.Parameter.empty)
        return next((name for name in lacks if name not in given), None)

    def filled_in(self, given: Collection[str]) -> dict[str, str]:
        """The arguments of a model that no user has to give.

        Args:
            given: Names that the user gives all the same.

        Returns:
            Argument → `in_features`, `out_features` or `rngs`, whose value it gets.
        """
        found = {
            next((name for name in names if name in self.named), role if self.further else ""): role
            for role, names in _FILLED_IN.items()
        }
        return {name: role for name, role in found.items() if name and name not in given}


def options_of(reference: str, given: Collection[str], known: Collection[str]) -> dict[str, Any]:
    """The options that a class or function takes by keyword, with their defaults; `inspect.Parameter.empty` without one.

    Args:
        reference: as of `load_reference`.
        given: names that an optimizer is always called with, and must take; of a model none.
        known: names of options.

    Raises:
        UserCodeError: as `load_reference`; or an optimizer does not take what is given, or needs more than is known.
    """
    named, further = Arguments.of(reference)
    if further:
        return {}
    if lacking := [name for name in given if name not in named]:
        raise UserCodeError(f"{reference!r} is called with {', '.join(given)}, but takes no {lacking[0]}")
    if given and (missing := Arguments(named, further).missing((*given, *known))) is not None:
        raise UserCodeError(
            f"{reference!r} needs {missing!r}, which no configuration has: give it a default, or call it one of "
            f"{', '.join(known)}"
        )
    return {name: default for name, default in named.items() if name in known}


def _from_file(reference: str, path: Path) -> ModuleType:
    import cloudpickle

    try:
        file = path.resolve(strict=True)
        name = _module_name(file)
        if name in sys.modules:
            return sys.modules[name]
        content = file.read_bytes()
    except FileNotFoundError:
        raise UserCodeError(f"{reference!r}: there is no file {path} in {Path.cwd()}") from None
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # of every file that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not by the module's loader, which would rather take bytecode, and reads the file once more.
        exec(compile(content, file, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    _SHA256[name] = hashlib.sha256(content).hexdigest()
    cloudpickle.register_pickle_by_value(module)
    return module


def _module_name(file: Path) -> str:
    return f"dorylax_own_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
