"""What travels to a function and back."""

from __future__ import annotations

import json

import pytest

from dorylax.net.errors import WireError
from dorylax.net.keys import RunKeys
from dorylax.serverless.function.invocation import Invocation, read_response, response
from dorylax.serverless.handler.settings import SandboxSettings

KEYS = RunKeys.make()
SETTINGS = SandboxSettings(KEYS, jax={"jax_enable_x64": False})


@pytest.mark.parametrize("event", [None, b"", b"\x00\xff anything"])
def test_an_invocation_holds_settings_and_event(event: bytes | None) -> None:
    found = Invocation.read(json.loads(Invocation(SETTINGS, event).encode()))
    assert found.event == event
    assert found.settings.keys == RunKeys.from_json(KEYS.to_json())
    assert found.settings.jax == SETTINGS.jax


@pytest.mark.parametrize("answer", [None, b"", b"{}"])
def test_a_response_holds_the_answer(answer: bytes | None) -> None:
    assert read_response(json.dumps(response(answer)).encode()) == answer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": "{}"}, "'settings' must be those of a sandbox"),
        ({"settings": 3}, "'settings' must be those of a sandbox"),
        ({"settings": {"token": KEYS.token.hex()}}, "'settings' must be those of a sandbox"),
        ({"event": 7}, "'event' must be base64 or null"),
        ({"event": "é"}, "'event' must be base64 or null"),
        ({"format": "other"}, "'format' must be 'dorylax invocation'"),
        ({"more": 1}, "unknown keys"),
    ],
)
def test_refuses_what_is_no_invocation_and_shows_no_key(change: dict[str, object], message: str) -> None:
    document = json.loads(Invocation(SETTINGS, b"event").encode()) | change
    with pytest.raises(WireError, match=message) as caught:
        Invocation.read(document)
    for secret in (KEYS.worker_secret.decode(), KEYS.token.hex()[:8]):
        assert secret not in str(caught.value)


@pytest.mark.parametrize("document", [None, [], 3, Invocation(SETTINGS, None).encode().decode()])
def test_what_is_no_object_is_not_shown(document: object) -> None:
    with pytest.raises(WireError, match=r"^an invocation must be an object, got a ") as caught:
        Invocation.read(document)
    assert len(str(caught.value)) < 60


def test_another_version_is_named() -> None:
    with pytest.raises(WireError, match="both ends must run the same release"):
        Invocation.read(json.loads(Invocation(SETTINGS, None).encode()) | {"version": 2})
