"""Exceptions as one line and an exit code."""

from __future__ import annotations

import errno
import os

import jax
import pytest

from dorylax.errors import InputError, RunError
from dorylax.terminal.failures import explain


@pytest.mark.parametrize(("error", "code"), [(InputError("wrong"), 2), (RunError("wrong"), 1)])
def test_general_errors_are_their_text_and_their_code(error: Exception, code: int) -> None:
    assert explain(error) == ("wrong", code)


def test_what_is_not_ours_is_not_explained() -> None:
    assert explain(ValueError("not ours")) is None


def test_memory_that_xla_does_not_get_is_one_line() -> None:
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore")
    explained = explain(error)
    assert explained is not None
    assert explained.code == 1
    assert explained.line.startswith("this does not fit in memory (Out of memory allocating 8 bytes): lower model.hidd")
    assert explain(jax.errors.JaxRuntimeError("INTERNAL: a bug")) is None


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))]
)
def test_threads_that_the_system_refuses_are_one_line(error: Exception) -> None:
    explained = explain(error)
    assert explained is not None
    assert explained.code == 1
    assert explained.line.startswith("no more threads or processes may be started: raise the limit of this user")


def test_a_library_that_finds_no_room_is_one_line() -> None:
    explained = explain(ImportError("libjax_common.so: failed to map segment from shared object"))
    assert explained is not None
    assert explained == (
        "the address space does not suffice to load libraries (libjax_common.so): raise the limit (ulimit -v)",
        1,
    )
    assert explain(ImportError("cannot import name 'x'")) is None


def test_an_error_of_the_file_system_that_is_a_text_alone_is_one_line() -> None:
    assert explain(OSError("8192 requested and\n4096 written")) == ("8192 requested and 4096 written", 1)
    assert explain(OSError()) == ("OSError", 1)
