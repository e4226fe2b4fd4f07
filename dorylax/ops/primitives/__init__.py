"""The graph operators as JAX primitives: closed under differentiation, batching and transposition.

Importing the package defines all of them, so that `operator.OPERATORS` is complete.
"""

from dorylax.ops.primitives import attention, extremum, linear, scaled, softmax

__all__ = ["attention", "extremum", "linear", "scaled", "softmax"]
