"""How tests compile: without XLA's costly optimisations, which programs that run once or twice never pay back."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
from jax._src import compiler
from jax._src.interpreters import mlir

_FUSION = "xla_cpu_use_fusion_emitters"
_X86 = platform.machine() == "x86_64"
_AVX2 = _X86 and " avx2 " in Path("/proc/cpuinfo").read_text() and os.environ.get("DORYLAX_NATIVE") != "baseline"
INSTRUCTIONS = ("AVX2" if _AVX2 else "SSE4_2") if _X86 else "best"
"""The vector instructions that tests compile for. Newer ones stay unused, so that processors round alike."""
_FLAGS = [
    f"--{_FUSION}=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_enable_platform_dependent_math=false",
    "--xla_cpu_experimental_ynn_fusion_type=",  # YNNPACK dispatches on the processor, without a bound
    *([f"--xla_cpu_max_isa={INSTRUCTIONS}"] if _X86 else []),
]
_ONEDNN = {"AVX2": "AVX2", "SSE4_2": "SSE41"}
"""oneDNN multiplies matrices for XLA with the newest instructions up to this bound."""
_QUICK = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": " ".join(_FLAGS),
    **({"ONEDNN_MAX_CPU_ISA": _ONEDNN[INSTRUCTIONS]} if INSTRUCTIONS in _ONEDNN else {}),
}
_PROGRAMS = 500
"""In one MLIR context."""


def quickly() -> None:
    """For the whole session, here and in the processes that tests start; before JAX has compiled anything.

    XLA's fusion emitters take half of the time for a single operation, without anything to fuse. Splitting a small module
    for parallel code generation takes a third of the rest and changes no code.
    """
    os.environ.update(_QUICK)
    jax.config.update("jax_disable_most_optimizations", True)


def in_one_context() -> None:
    """Has JAX write the programs of a thread in one MLIR context, in this process and until its end.

    It makes one for each program, which is more than a third of the time that tests spend on lowering. A context keeps all
    types and constants that it has seen, so there is a new one now and then.
    """
    made, local = mlir.make_ir_context, threading.local()

    def make_ir_context() -> Any:
        left = getattr(local, "left", 0)
        if not left:
            local.context, left = made(), _PROGRAMS
        local.left = left - 1
        return local.context

    mlir.make_ir_context = make_ir_context


@contextlib.contextmanager
def as_users_do() -> Iterator[None]:
    """With all optimisations, for tests of what XLA makes of a function."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        with with_fusion():
            yield
    finally:
        quickly()


@contextlib.contextmanager
def with_fusion() -> Iterator[None]:
    """With XLA's fusion emitters here, which round otherwise, and all optimisations in processes that are started."""
    quick: Any = compiler.get_compile_options

    def options(*args: Any, env_options_overrides: dict[str, Any] | None = None, **others: Any) -> Any:
        return quick(*args, env_options_overrides={_FUSION: True, **(env_options_overrides or {})}, **others)

    with mock.patch.dict(os.environ), mock.patch.object(compiler, "get_compile_options", options):
        for name in _QUICK:
            os.environ.pop(name, None)
        yield
