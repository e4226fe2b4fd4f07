"""Functions inside functions are checked, each by its own annotations, and their checks are compiled once."""

from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError, jaxtyped
from support import type_checks


def adder(number: int, kind: Any, default: Any = None) -> Callable[..., Any]:
    def add(other: kind = default) -> kind:
        return number + other if isinstance(number, type(other)) else "wrong"

    return jaxtyped(add, typechecker=type_checks.checked)


def test_arguments_and_results_of_inner_functions_are_checked() -> None:
    for number in (1, 2):
        add = adder(number, int)
        assert add(3) == number + 3
        with pytest.raises(TypeCheckError, match="parameter 'other'"):
            add("3")
        with pytest.raises(TypeCheckError, match="return value"):
            adder(1.5, int)(3)


def test_annotations_that_depend_on_the_call_are_told_apart() -> None:
    assert adder(1, int)(3) == 4
    assert adder("a", str)("b") == "ab"
    with pytest.raises(TypeCheckError):
        adder("a", str)(3)


def test_each_has_its_own_default() -> None:
    assert adder(1, int, 2)() == 3
    assert adder(1, int, 5)() == 6


def test_it_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    adder(1, int)
    monkeypatch.setattr(type_checks, "beartype", None)
    assert adder(2, int)(3) == 5


def test_what_has_no_hash_is_checked() -> None:
    with pytest.raises(TypeCheckError):
        adder(1, Annotated[int, ["a list"]])("3")


def test_the_package_is_checked() -> None:
    from dorylax.memory.estimate import gibibytes

    assert gibibytes(2**30) == "1.0 GiB"
    with pytest.raises(TypeCheckError, match="'a lot'"):
        gibibytes("a lot")  # type: ignore[arg-type]


def test_shapes_are_checked() -> None:
    from dorylax.ops.row_random import row_bits

    key = jax.random.key(0)
    assert row_bits(key, jnp.arange(2), 3).shape == (2, 3)
    with pytest.raises(TypeCheckError, match="parameter 'ids'"):
        row_bits(key, jnp.zeros((2, 2), jnp.int32), 3)


def ordinary(number: "int") -> "str":
    return "one" if number == 1 else number  # type: ignore[return-value]


def with_shapes(rows: "list[Float[np.ndarray, 'V']]", total: "Float[np.ndarray, 'V'] | None" = None) -> None:
    pass


def for_type_checkers_only(number: "int", other: "Missing") -> None:  # type: ignore[name-defined]
    pass


def test_functions_without_shapes_are_checked_by_beartype_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_checks, "_with_shapes", None)
    check = type_checks.jaxtyped(typechecker=type_checks.checked)(ordinary)
    assert check(1) == "one"
    with pytest.raises(TypeCheckError):
        check("1")
    with pytest.raises(TypeCheckError):
        check(2)


def test_all_others_by_jaxtyping() -> None:
    check = type_checks.jaxtyped(with_shapes, typechecker=type_checks.checked)
    check([np.zeros(2), np.zeros(2)], np.zeros(2))
    with pytest.raises(TypeCheckError):
        check([np.zeros(2)], np.zeros(3))
    with pytest.raises(TypeCheckError):
        type_checks.jaxtyped(for_type_checkers_only, typechecker=type_checks.checked)("1", 2)
