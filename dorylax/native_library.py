"""Where the package's native libraries are: shared objects without Python's C API, loaded by ctypes.

They are built when dorylax is installed (CMakeLists.txt). Each is looked for in its folder of this checkout first and then
in the same folder of every other `dorylax` on the import path: in a checkout the sources come from the checkout and the
libraries from the installed package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

SWITCH = "DORYLAX_NATIVE"
"""The environment variable that turns native code off ("0"), or chooses the instruction set of the kernels."""

_SUFFIXES = (".so", ".dylib", ".dll")


def is_off() -> bool:
    """Whether the user wants no native code."""
    return os.environ.get(SWITCH) == "0"


def candidates(folder: str, name: str) -> Iterator[Path]:
    """The files that may be a library, the likeliest first.

    Args:
        folder: of the package, as "ops".
        name: of the library, without suffix.
    """
    here = Path(__file__).resolve().parent / folder
    folders = [here, *(Path(entry or ".").resolve() / "dorylax" / folder for entry in sys.path)]
    for one in dict.fromkeys(folders):
        for suffix in _SUFFIXES:
            if (path := one / f"{name}{suffix}").is_file():
                yield path
