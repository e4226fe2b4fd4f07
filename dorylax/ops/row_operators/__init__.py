"""Graph operators on NumPy buffers and slices of compressed rows, for graph servers that run them on threads of their own.

Each means what the primitive of its name means (`dorylax.ops.primitives`), for the rows of a `RowRange` only. The native
kernels compute float32, float64 and bfloat16, without Python's lock; NumPy does the rest, and everything where there is no
native library.
"""

from dorylax.ops.row_operators.rows import RowRange
from dorylax.ops.row_operators.run import run
from dorylax.ops.row_operators.values import ROLES, Role, is_push, roles, rows_side

__all__ = ["ROLES", "Role", "RowRange", "is_push", "roles", "rows_side", "run"]
