"""What the layers of a Flax NNX model give while it runs: their outputs, and what they sow.

`nnx.capture`, which is of Flax 0.12.8, changes the classes of modules for everybody while it records. Here single modules
get a class of their own, so that another thread may train a model of the same kind meanwhile.
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
"""What the model itself gives."""

_RECORDER: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("recorder", default=None)


@final
class Recorder:
    """Keeps what the modules of one model give.

    Args:
        model: it is changed, and of no other use afterwards.

    Attributes:
        found: values by name, in the order in which they came.
    """

    def __init__(self, model: nnx.Module) -> None:
        self.found: dict[str, list[Any]] = {}
        self._paths: dict[int, tuple[Any, ...]] = {}
        for path, module in list(nnx.iter_modules(model)):
            self._paths[id(module)] = path
            object.__setattr__(module, "__class__", _watched(type(module)))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """While this is open, modules tell."""
        token = _RECORDER.set(self)
        try:
            yield
        finally:
            _RECORDER.reset(token)

    def record(self, module: nnx.Module, name: str | None, value: Any) -> None:
        """Keeps a value: the module's output, or one that it has sown under a name.

        Copies that a transformation (`nnx.scan`, `nnx.remat`) has made of a module are unknown here: what they compute is
        not to be seen outside of it.
        """
        path = self._paths.get(id(module))
        if path is not None:
            self.found.setdefault(name_of(path, name), []).append(value)


def name_of(path: Sequence[Any], name: str | None = None) -> str:
    """What a value is called: `convs.0` is the output of `model.convs[0]`, `convs.0.attention` something that it sows."""
    return ".".join([*map(str, path), *([] if name is None else [name])]) or OUTPUT


def flat(found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Arrays by name; where there are several of a name, they are numbered: `convs.0.1`."""
    arrays = {}
    for name, values in found.items():
        leaves = jax.tree.leaves_with_path(values[0] if len(values) == 1 else list(values))
        for path, leaf in leaves:
            below = jax.tree_util.keystr(path, simple=True, separator=".")
            arrays[f"{name}.{below}" if below else name] = leaf
    return arrays


@functools.lru_cache(maxsize=1024)
def _watched(kind: type[nnx.Module]) -> type[nnx.Module]:
    """A class as another one, whose modules tell what they give."""

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

    # By `__captures__` a layer knows that what it sows is kept, as under `nnx.capture` (`dorylax.layers.attention`).
    members: dict[str, Any] = {"sow": sow, "__captures__": (), "__module__": kind.__module__}
    if any("__call__" in vars(base) for base in kind.__mro__):
        members["__call__"] = told
    return type(kind.__name__, (kind,), members)


def _is_intermediate(variable_type: Any) -> bool:
    if isinstance(variable_type, str):
        return variable_type == "intermediates"
    return issubclass(variable_type, nnx.Intermediate) and not issubclass(variable_type, nnx.Perturbation)
