"""Records outputs and sown values of the layers of a Flax NNX model while it runs.

`nnx.capture` of Flax 0.12.8 changes the classes of all modules in the process while it records. Here, only the
recorded modules get a new class, so that another thread may train a model of the same kind meanwhile.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import jax
from flax import nnx

OUTPUT = "output"
"""Name of the model's own output."""

_RECORDER: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("recorder", default=None)


@final
class Recorder:
    """Records the values of one model's modules.

    Args:
        model: The model; it is changed and must not be used otherwise.

    Attributes:
        found: Name → values, in the order of recording.
    """

    def __init__(self, model: nnx.Module) -> None:
        self.found: dict[str, list[Any]] = {}
        self._paths: dict[int, tuple[Any, ...]] = {}
        for path, module in list(nnx.iter_modules(model)):
            self._paths[id(module)] = path
            object.__setattr__(module, "__class__", _watched(type(module)))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Context in which modules record."""
        token = _RECORDER.set(self)
        try:
            yield
        finally:
            _RECORDER.reset(token)

    def record(self, module: nnx.Module, name: str | None, value: Any) -> None:
        """Record a module's output, or a value that it has sown under a name.

        Copies of a module made by a transformation (`nnx.scan`, `nnx.remat`) are skipped, since their values do not exist
        outside of it.
        """
        path = self._paths.get(id(module))
        if path is not None:
            self.found.setdefault(name_of(path, name), []).append(value)


def name_of(path: Sequence[Any], name: str | None = None) -> str:
    """Return the name of a value: `convs.0` is the output of `model.convs[0]`, `convs.0.attention` a value that it sows."""
    return ".".join([*map(str, path), *([] if name is None else [name])]) or OUTPUT


def flat(found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return name → array; several values of one name are numbered: `convs.0.1`."""
    arrays = {}
    for name, values in found.items():
        leaves = jax.tree.leaves_with_path(values[0] if len(values) == 1 else list(values))
        for path, leaf in leaves:
            below = jax.tree_util.keystr(path, simple=True, separator=".")
            arrays[f"{name}.{below}" if below else name] = leaf
    return arrays


@functools.lru_cache(maxsize=1024)
def _watched(kind: type[nnx.Module]) -> type[nnx.Module]:
    """Derive a class whose modules record their values."""

    def told(self: nnx.Module, *args: Any, **options: Any) -> Any:
        result = kind.__call__(self, *args, **options)
        if (recorder := _RECORDER.get()) is not None:
            recorder.record(self, None, result)
        return result

    def sow(self: nnx.Module, variable_type: Any, name: str, value: Any, *_: Any, **__: Any) -> bool:
        recorder = _RECORDER.get()
        if recorder is None or not _is_intermediate(variable_type):
            return False
        recorder.record(self, name, value)
        return True

    # By `__captures__` a layer finds that sown values are kept, as under `nnx.capture` (`dorylax.layers.base.captures`).
    members: dict[str, Any] = {"sow": sow, "__captures__": (), "__module__": kind.__module__}
    if any("__call__" in vars(base) for base in kind.__mro__):
        members["__call__"] = told
    return type(kind.__name__, (kind,), members)


def _is_intermediate(variable_type: Any) -> bool:
    if isinstance(variable_type, str):
        return variable_type == "intermediates"
    return issubclass(variable_type, nnx.Intermediate) and not issubclass(variable_type, nnx.Perturbation)
