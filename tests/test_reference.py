"""The generated reference pages agree with the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dorylax.config import schema
from dorylax.program import gathers

_DOCS = Path(__file__).parent.parent / "docs"
_SPEC = importlib.util.spec_from_file_location("reference", _DOCS / "reference.py")
assert _SPEC is not None
assert _SPEC.loader is not None
reference = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reference)


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (_DOCS / name).read_text(encoding="utf-8") == reference.PAGES[name](), "run python docs/reference.py"


def test_settings_without_jax_repeat_the_storage_types_of_the_program() -> None:
    assert schema.Gathered == gathers.Gathered
