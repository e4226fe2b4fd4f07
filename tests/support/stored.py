"""Arrays of a data set on disk."""

from __future__ import annotations

from os import PathLike

import numpy as np

from dorylax.graph.array_folder import open_arrays


def contents(path: str | PathLike[str]) -> dict[str, np.ndarray]:
    """All arrays and values of a folder or archive, in memory."""
    with open_arrays(path) as stored:
        return {name: np.array(stored.fetch(name)) for name in stored.names}
