from __future__ import annotations

from dorylax.program.jaxpr.symbols import new_dimensions, row_space


def test_multiples_of_a_symbol_count_rows() -> None:
    n, e = new_dimensions()
    assert [row_space(dim) for dim in (n, e, 3 * n, 2 * e)] == [("vertex", 1), ("edge", 1), ("vertex", 3), ("edge", 2)]
    assert [row_space(dim) for dim in (7, n + 1, n - 1, n * n, n * e, n + e, n // 2, 2 * n // 3)] == [None] * 8


def test_a_product_over_a_divisor_counts_rows_as_well() -> None:
    n, _ = new_dimensions()
    assert row_space(6 * n // 3) == ("vertex", 2)


def test_each_trace_has_symbols_of_its_own() -> None:
    first, second = new_dimensions(), new_dimensions()
    assert [row_space(dim) for dim in (*first, *second)] == [("vertex", 1), ("edge", 1)] * 2
    assert first.vertices.scope is not second.vertices.scope
