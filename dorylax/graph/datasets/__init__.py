"""Named data sets.

`load("cora")`, for example. Built in is `communities` (generated, in sizes from tiny to the paper's graphs); published
are the planetoid, amazon, coauthor, reddit and OGB graphs, from `$DORYLAX_DATA` or by download. A family that is added
is a function that reads it and `Published` records, in the table of `published`.
"""

from dorylax.errors import InputError as DatasetError
from dorylax.graph.cache import cache_directory
from dorylax.graph.data_shape import Size
from dorylax.graph.datasets.registry import Description, describe, generate, load, names

__all__ = ["DatasetError", "Description", "Size", "cache_directory", "describe", "generate", "load", "names"]
