"""Models from outside: each written anew from its paper, as its authors would in Flax or JAX, on `dorylax.ops` alone."""

from support.outside import attention, convolutions, deep, edges, losses, spectral, whole_graph
from support.outside.case import Outside

_FAMILIES = (convolutions, attention, edges, spectral, deep, whole_graph, losses)
OUTSIDE: dict[str, Outside] = {name: case for family in _FAMILIES for name, case in family.CASES.items()}

__all__ = ["OUTSIDE", "Outside"]
