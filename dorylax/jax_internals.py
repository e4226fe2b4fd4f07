"""Every name that dorylax takes from JAX without a promise that it stays: the one module to mend for a new JAX release.

`jax.extend` and `jax.interpreters` are public but may change between releases; a few things (symbolic dimensions,
source lines of equations) have no public name at all. `pyproject.toml` pins the minor version of JAX for this
module's sake.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import export
from jax._src import source_info_util as _source_info
from jax._src.core import InconclusiveDimensionOperation, eval_jaxpr
from jax._src.dispatch import apply_primitive
from jax._src.linear_util import DebugInfo
from jax.core import ShapedArray
from jax.extend.core import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    Var,
    jaxprs_in_params,
)
from jax.extend.random import threefry2x32_p
from jax.interpreters import ad, batching, mlir

__all__ = [
    "ClosedJaxpr",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "SourceLine",
    "Var",
    "ad",
    "apply_primitive",
    "as_written_at",
    "batching",
    "close",
    "debugged",
    "equation_like",
    "eval_jaxpr",
    "first_source_line",
    "fresh_var",
    "is_key",
    "is_literal",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "jit",
    "make_jaxpr_of",
    "mlir",
    "multiple_of",
    "replace_equation",
    "size_at",
    "source_lines",
    "symbols_of",
    "threefry2x32_p",
    "type_of",
    "variables",
    "without_lapack",
    "without_locations",
    "written_at",
    "written_somewhere",
]


# Jaxprs


def fresh_var(aval: Any) -> Var:
    """A variable that equals no other."""
    return Var(aval)


def is_literal(atom: Any) -> bool:
    """Whether an operand is a constant written into the equation."""
    return isinstance(atom, Literal)


def variables(atoms: Iterable[Any]) -> list[Var]:
    """Those operands that are not literals, in order."""
    return [atom for atom in atoms if not is_literal(atom)]


def type_of(atom: Any) -> ShapedArray:
    """The shape and dtype of an operand or result."""
    aval: ShapedArray = atom.aval
    return aval


def is_key(aval: Any) -> bool:
    """Whether values of this type are typed random keys."""
    return bool(jnp.issubdtype(aval.dtype, jax.dtypes.prng_key))


def replace_equation(
    equation: JaxprEqn, operands: Sequence[Any], results: Sequence[Var], params: Mapping[str, Any] | None = None
) -> JaxprEqn:
    """The same operation at the same source line on other operands."""
    new: JaxprEqn = equation.replace(
        invars=list(operands), outvars=list(results), params=dict(equation.params if params is None else params)
    )
    return new


def equation_like(like: JaxprEqn, primitive: Primitive, operands: Sequence[Any], results: Sequence[Var]) -> JaxprEqn:
    """Another operation, without parameters, written at the source line of an equation."""
    new: JaxprEqn = like.replace(
        primitive=primitive, invars=list(operands), outvars=list(results), params={}, effects=frozenset()
    )
    return new


def close(
    inputs: Sequence[Var],
    outputs: Sequence[Any],
    equations: Sequence[JaxprEqn],
    consts: Mapping[Var, Any] | None = None,
) -> ClosedJaxpr:
    """A closed jaxpr of these equations."""
    held = consts or {}
    # Without one JAX warns that a jaxpr's origin is missing; names of arguments are not known here.
    origin = DebugInfo("program", "dorylax", None, None)
    jaxpr = Jaxpr(list(held), list(inputs), list(outputs), list(equations), debug_info=origin)
    return ClosedJaxpr(jaxpr, list(held.values()))


def make_jaxpr_of(fun: Callable[..., Any], *specs: Any) -> ClosedJaxpr:
    """The jaxpr of a function of arrays with these shapes, which may be symbolic."""
    return jax.make_jaxpr(fun)(*specs)


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The function of a closed jaxpr. That of `jax.extend` switches `jax_debug_nans` off."""
    return functools.partial(eval_jaxpr, closed.jaxpr, closed.consts)


def debugged(*flags: str) -> bool:
    """Whether one of some flags is set; by default those that make JAX run operation by operation, never ahead of time."""
    return any(getattr(jax.config, name) for name in flags or ("jax_disable_jit", "jax_debug_nans"))


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` whose errors under `jax_debug_nans` keep the source line of the operation, which those of JAX lose."""
    jitted = jax.jit(function, **options)

    def call(*args: Any) -> Any:
        try:
            return jitted(*args)
        except FloatingPointError:
            function(*args)
            raise

    return call


# Symbolic dimensions


def symbols_of(dim: Any) -> frozenset[str]:
    """The names of the symbols in a dimension; empty for a number."""
    return frozenset() if isinstance(dim, int) or not hasattr(dim, "_get_vars") else frozenset(dim._get_vars())


def size_at(dim: Any, sizes: Mapping[str, Any]) -> Any:
    """The value of a dimension where its symbols have these values: integers, or integer arrays of JAX."""
    return dim._evaluate(dict(sizes)) if hasattr(dim, "_evaluate") else int(dim)


def multiple_of(dim: Any) -> tuple[str, int] | None:
    """The symbol and the factor of a dimension that is exactly factor·symbol; None for numbers and other expressions."""
    terms: Any = getattr(dim, "_sorted_terms", ())
    if len(terms) != 1 or terms[0][0].is_constant:
        return None
    symbol = terms[0][0].to_var()
    return None if symbol is None else (symbol, int(terms[0][1]))


# Source lines


def as_written_at(equation: JaxprEqn) -> AbstractContextManager[None]:
    """Within it, what is traced has the source line of an equation."""
    context: AbstractContextManager[None] = _source_info.user_context(
        equation.source_info.traceback, name_stack=equation.source_info.name_stack
    )
    return context


class SourceLine(NamedTuple):
    """A place in Python source."""

    file: str
    line: int
    function: str


def source_lines(equation: JaxprEqn) -> Iterator[SourceLine]:
    """Where an operation was written: frames outside JAX, innermost first."""
    for frame in _source_info.user_frames(equation.source_info.traceback):
        yield SourceLine(frame.file_name, frame.start_line, frame.function_name)


def written_somewhere(equation: JaxprEqn) -> bool:
    """Whether a source line outside JAX is known."""
    return next(source_lines(equation), None) is not None


def written_at(equation: JaxprEqn, like: JaxprEqn) -> JaxprEqn:
    """The equation with the source line of another."""
    new: JaxprEqn = equation.replace(source_info=like.source_info)
    return new


def first_source_line(equation: JaxprEqn, skip: Callable[[str], bool], limit: int = 50) -> SourceLine | None:
    """The innermost frame whose file is not skipped; the innermost of all if there is none."""
    frames = list(itertools.islice(source_lines(equation), limit))
    return next((frame for frame in frames if not skip(frame.file)), frames[0] if frames else None)


# Exported functions


def without_locations(exported: export.Exported) -> export.Exported:
    """The same exported function without its source lines, which differ between equal functions."""
    from jax._src.export import _export
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir.dialects import stablehlo

    context = make_ir_context()
    with context, ir.Location.unknown():
        module = stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        return dataclasses.replace(exported, mlir_module_serialized=_export._module_to_bytecode(module))


_lapack_lock = threading.Lock()


_THREAD_SETTINGS: dict[str, Callable[[Any], AbstractContextManager[Any]]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_default_device": jax.default_device,
    "jax_debug_nans": jax.debug_nans,
    "jax_disable_jit": jax.disable_jit,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
}


def thread_settings() -> Callable[[], None] | None:
    """A function that gives another thread this thread's settings by context managers (`with jax.enable_x64(True)`).

    None where a new thread has the same: entering what is there already would make JAX compile everything again.
    """

    def found() -> dict[str, Any]:
        return {name: getattr(jax.config, name) for name in _THREAD_SETTINGS}

    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(found).result()
    differing = {name: value for name, value in found().items() if value != elsewhere[name]}

    def enter() -> None:
        for name, value in differing.items():
            _THREAD_SETTINGS[name](value).__enter__()

    return enter if differing else None


@contextlib.contextmanager
def without_lapack() -> Iterator[None]:
    """Within it, exported functions are compiled in this thread without loading LAPACK.

    JAX loads it, and SciPy with it, for every exported function that is compiled for CPUs. Those that hold no call of it
    (a name that begins with `lapack_`) do not need it; others crash.
    """
    from jax._src.export import _export

    thread = threading.get_ident()
    with _lapack_lock:
        initialise = _export._ensure_backends_initialized

        def only_elsewhere(platforms: tuple[str, ...]) -> None:
            if threading.get_ident() != thread:
                initialise(platforms)

        _export._ensure_backends_initialized = only_elsewhere
        try:
            yield
        finally:
            _export._ensure_backends_initialized = initialise
