from __future__ import annotations

import pytest

from dorylax.columns import column


@pytest.mark.parametrize(
    ("values", "kind", "dtype"),
    [
        ([1, 2], int, "int64"),
        ([1, None], int, "Int64"),
        ([], int, "int64"),
        ([1, 2.5], float, "float64"),
        ([None, 2.5], float, "float64"),
        ([True], bool, "bool"),
        ([True, None], bool, "boolean"),
        (["a", None], str, "string"),
    ],
)
def test_types_follow_from_kinds(values, kind, dtype):
    found = column(values, kind)
    assert found.dtype == dtype
    assert [bool(one) for one in found.isna()] == [value is None for value in values]
