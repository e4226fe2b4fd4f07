from __future__ import annotations

import json

import pytest

from dorylax.store.digest import DigestError, digest_of, sealed, unsealed

FIELDS = {"schema": 1, "b": [1.0, None, "größer"], "a": {"10": 1, "9": -0.0}}


def test_what_is_documented():
    assert digest_of({"b": "ö", "a": [1.5, None]}) == "093169b14276b7d6"  # of {"a":[1.5,null],"b":"\u00f6"}


def test_it_is_of_values_in_any_order_and_layout():
    content = json.loads(json.dumps(sealed(FIELDS), indent=7, ensure_ascii=False))
    turned = dict(reversed(content.items()))
    assert unsealed(content, without=0) == unsealed(turned, without=0) == FIELDS


def test_keys_that_become_text_are_sorted_as_text():
    content = sealed({"schema": 1, "rows": {10: 1, 9: 2}})
    assert unsealed(json.loads(json.dumps(content)), without=0) == {"schema": 1, "rows": {"10": 1, "9": 2}}


@pytest.mark.parametrize(
    "change", [{"b": [1, None]}, {"more": 1}, {"schema": 2}, {"digest": None}, {"b": float("nan")}]
)
def test_anything_else_is_refused(change):
    with pytest.raises(DigestError):
        unsealed({**sealed(FIELDS), **change}, without=9)
    with pytest.raises(DigestError):
        unsealed({name: value for name, value in sealed(FIELDS).items() if name != "b"}, without=9)


def test_only_files_of_before_need_none():
    assert unsealed(FIELDS, without=1) == FIELDS
    for schema in (2, 0, -1, "1", None):
        with pytest.raises(DigestError, match="has no digest"):
            unsealed({"schema": schema}, without=1)
    with pytest.raises(DigestError, match="has no digest"):
        unsealed({}, without=1)
