"""Keys travel to workers without the servers' secret, and show none in logs."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dorylax.serverless.data.keys import RunKeys


def test_workers_get_all_but_the_servers_secret():
    keys = RunKeys.make()
    text = keys.to_json()
    assert "\n" not in text
    assert keys.server_secret.decode() not in text
    assert RunKeys.from_json(text) == dataclasses.replace(keys, server_secret=None)


def test_runs_have_different_keys():
    one, other = RunKeys.make(), RunKeys.make()
    for name in (field.name for field in dataclasses.fields(RunKeys)):
        assert getattr(one, name) != getattr(other, name)


def test_no_secret_is_shown():
    keys = RunKeys.make()
    for text in (repr(keys), str(keys), f"{keys}"):
        assert keys.run in text
        for secret in (keys.token, keys.worker_secret, keys.server_secret):
            assert repr(secret) not in text
            assert secret.hex() not in text


@pytest.mark.parametrize(
    "change", [{"token": "ab"}, {"token": 7}, {"run": ""}, {"run": "x"}, {"worker_secret": "short"}]
)
def test_damaged_keys_are_refused_without_showing_them(change):
    keys = RunKeys.make()
    text = json.dumps({**json.loads(keys.to_json()), **change})
    with pytest.raises(ValueError, match="not the keys of a run") as caught:
        RunKeys.from_json(text)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_what_is_no_keys_at_all(text):
    with pytest.raises(ValueError, match="not the keys of a run"):
        RunKeys.from_json(text)
