from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from dorylax.jax_internals import make_jaxpr_of
from dorylax.program.jaxpr.errors import SplitError, refuse


def written_here(x: Any) -> Any:
    return jnp.sin(x)


def test_the_message_has_reason_operation_line_and_advice() -> None:
    (equation,) = make_jaxpr_of(written_here, 1.0).jaxpr.eqns
    with pytest.raises(SplitError) as caught:
        refuse(equation, "this is wrong", "Do that")
    line = written_here.__code__.co_firstlineno + 1
    assert str(caught.value) == f"this is wrong [sin, at test_errors.py:{line} (written_here)]. Do that."
