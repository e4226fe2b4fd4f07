"""Runs Python where only some installed packages can be imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

JAX = ("jax", "jaxlib", "numpy", "numpy.libs", "ml_dtypes", "opt_einsum")
"""JAX, and what `import jax` imports."""


def run(folder: Path, *words: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a file, or code, with the standard library and `JAX`.

    Args:
        folder: an empty one, in which it runs.
        words: of the command line, after the program.
        code: instead of a file.
    """
    packages = folder / "packages"
    if not packages.exists():
        packages.mkdir()
        spec = importlib.util.find_spec("numpy")
        assert spec is not None and spec.origin is not None  # noqa: PT018
        installed = Path(spec.origin).parent.parent
        for name in JAX:
            if (installed / name).exists():
                (packages / name).symlink_to(installed / name)
    start = f"import sys, runpy; sys.path.append({str(packages)!r}); sys.argv[:] = sys.argv[1:]\n"
    program = start + (code if code is not None else "runpy.run_path(sys.argv[0], run_name='__main__')")
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
