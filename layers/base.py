"""The contract of graph layers: shared options, parameters, input checks, and the dtype of the computation.

The dtype policy: features in one dtype give results in that dtype, regardless of the parameters' dtype. (Flax's default
promotes, so that bfloat16 features with float32 parameters become float32.) `follow_input` has the signature of
`promote_dtype` in Flax's layers, so these follow the policy too.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeVar, dataclass_transform, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike

_Class = TypeVar("_Class", bound=nnx.Module)

# Glorot & Bengio, AISTATS 2010: uniform in ±√(6 / (fan_in + fan_out)), as in the GCN and GAT papers.
glorot_uniform = jax.nn.initializers.glorot_uniform()
zeros = jax.nn.initializers.zeros


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(dataclasses.field,))
def module(cls: type[_Class]) -> type[_Class]:
    """Turn the annotated attributes of a Flax module into arguments of its constructor; `__post_init__` does the rest."""
    return dataclasses.dataclass(eq=False, repr=False, kw_only=True)(cls)


@module
class Conv(nnx.Module):
    """Base class of graph layers: the arguments that they share, and their parameters.

    A layer is called as `layer(graph, x)` with a graph of V vertices and E edges and `x [V, in_features]`. It returns
    `[V, out_features]` in `dtype`, or else in the dtype of `x`. The call raises a ValueError if `x` has another width, and
    the constructor if an option is unknown or out of range.

    Args:
        in_features: Width of the input rows.
        out_features: Width of the output rows.
        use_bias: Whether to add the biases (default: True).
        kernel_init: Initialiser of the kernels (default: Glorot uniform).
        bias_init: Initialiser of the biases (default: zeros).
        dtype: Dtype of the computation and the result (default: that of the input).
        param_dtype: Dtype of the parameters (default: float32).
        rngs: Streams `params` for the parameters and, if the layer drops anything, `dropout` for the masks.

    Attributes:
        kernel, bias: W `[in_features, out_features]`, and b `[out_features]` or None, unless the layer has others.
    """

    in_features: int = dataclasses.field(kw_only=False)
    out_features: int = dataclasses.field(kw_only=False)
    use_bias: bool = True
    kernel_init: Initializer = glorot_uniform
    bias_init: Initializer = zeros
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    rngs: dataclasses.InitVar[nnx.Rngs]

    def __post_init__(self, rngs: nnx.Rngs) -> None:
        self.kernel = self.new_kernel(rngs, self.in_features, self.out_features)
        self.bias = nnx.data(self.new_bias(rngs, self.out_features))

    def new_kernel(self, rngs: nnx.Rngs, *shape: int) -> nnx.Param[jax.Array]:
        """Return a new kernel of this shape."""
        return nnx.Param(self.kernel_init(rngs.params(), shape, self.param_dtype))

    def new_bias(self, rngs: nnx.Rngs, width: int) -> nnx.Param[jax.Array] | None:
        """Return a new bias `[width]`, or None without `use_bias`."""
        return nnx.Param(self.bias_init(rngs.params(), (width,), self.param_dtype)) if self.use_bias else None

    def new_dense(self, rngs: nnx.Rngs, in_features: int, out_features: int) -> nnx.Linear:
        """Return a new dense layer with the options of this layer."""
        names = ("use_bias", "kernel_init", "bias_init", "dtype", "param_dtype")
        return linear(in_features, out_features, **{name: getattr(self, name) for name in names}, rngs=rngs)

    def cast(self, x: jax.Array, *others: Any) -> Any:
        """Check the width of `x`; return it and the others (arrays, parameters or None) in the dtype of the computation."""
        check_width(type(self).__name__, x, self.in_features)
        return follow_input((x, *map(value_of, others)), dtype=self.dtype)


def value_of(parameter: Any) -> Any:
    """Return the array of a parameter; other values as they are."""
    return parameter[...] if isinstance(parameter, nnx.Variable) else parameter


def follow_input(values: Any, /, *, dtype: DTypeLike | None = None, inexact: bool = True) -> Any:
    """Return a layer's arrays, its input first, in `dtype`, or else in the dtype of the input; None stays None.

    Raises:
        TypeError: The dtype is not floating-point, as it must be if `inexact`.
    """
    target = jnp.dtype(values[0].dtype if dtype is None else dtype)
    if inexact and not jnp.issubdtype(target, jnp.inexact):
        raise TypeError(f"features must be of a floating dtype, got {target}: cast them to float32")
    return tuple(None if value is None else jnp.asarray(value, target) for value in values)


linear = functools.partial(nnx.Linear, kernel_init=glorot_uniform, promote_dtype=follow_input)
"""The dense layer of layers and models: Flax's, with the dtype policy and the initialiser of this package."""


def statistics_dtype(x: jax.Array) -> jnp.dtype[Any]:
    """Return the dtype of counts and their roots for `x`: at least float32 (bfloat16 counts only up to 256)."""
    return jnp.promote_types(jnp.float32, x.dtype)


def captures(layer: nnx.Module) -> bool:
    """Whether sown values of a layer are kept: `Trainer.intermediates` and `nnx.capture` mark modules for that."""
    return hasattr(layer, "__captures__")


def check_width(layer: str, x: jax.Array, in_features: int) -> None:
    """Raise a ValueError if the features `x` of `layer` are not `[rows, in_features]`."""
    if x.ndim != 2 or x.shape[1] != in_features:
        raise ValueError(f"{layer} expects features of shape [V, {in_features}] (its in_features), got {list(x.shape)}")


def check_counts(**counts: int) -> None:
    """Raise a ValueError if one of these arguments is below 1."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be ≥ 1, got {count}")


def check_fraction(name: str, value: float) -> None:
    """Raise a ValueError if the argument `name` is outside 0 … 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise a ValueError if the argument `name` is no member of the Literal `choices`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
