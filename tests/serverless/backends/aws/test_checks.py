"""What AWS says of a function before it is used."""

from __future__ import annotations

from typing import Any

import pytest

from dorylax.errors import RunError
from dorylax.serverless.backends.aws.checks import FunctionName, reserved_calls, shared_calls, state_of, warnings_of
from dorylax.settings.errors import ConfigError

READY: dict[str, Any] = {
    "FunctionName": "dorylax",
    "State": "Active",
    "LastUpdateStatus": "Successful",
    "Timeout": 900,
    "MemorySize": 1769,
}
ARN = "arn:aws:lambda:eu-central-1:123456789012:function:dorylax"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dorylax", ("dorylax", None)),
        ("dorylax:live", ("dorylax", "live")),
        (ARN, (ARN, None)),
        (f"{ARN}:live", (ARN, "live")),
    ],
)
def test_names(text: str, expected: tuple[str, str | None]) -> None:
    found = FunctionName.of(text)
    assert found == expected
    assert found.parameters() == {
        "FunctionName": expected[0],
        **({} if expected[1] is None else {"Qualifier": expected[1]}),
    }
    assert found.region == ("eu-central-1" if text.startswith("arn:") else None)


@pytest.mark.parametrize(
    "text", ["", ":", "a:", "a:b:c", ":b", "arn:aws:lambda", f"{ARN}:a:b", "arn:aws:lambda:r:1:function:"]
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^tensor\.function must be a name, name:alias or a function's ARN"):
        FunctionName.of(text)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "ready"),
        ({"State": "Inactive"}, "ready"),
        ({"State": "Pending"}, "changing"),
        ({"LastUpdateStatus": "InProgress"}, "changing"),
    ],
)
def test_states(change: dict[str, str], expected: str) -> None:
    assert state_of(READY | change) == expected


def test_a_description_of_long_ago_is_of_a_function_that_is_ready() -> None:
    assert state_of({"FunctionName": "dorylax"}) == "ready"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"State": "Failed", "StateReason": "no image"},
            r"dorylax could not be made \(no image\): dorylax aws teardown",
        ),
        ({"LastUpdateStatus": "Failed"}, r"could not be changed \(no reason given\): dorylax aws deploy"),
    ],
)
def test_failed(change: dict[str, str], text: str) -> None:
    with pytest.raises(RunError, match=text):
        state_of(READY | change)


@pytest.mark.parametrize(
    ("change", "deadline", "texts"),
    [
        ({}, None, []),
        ({}, 900.0, []),
        ({"Timeout": 60}, None, []),
        ({"Timeout": 60}, 100.0, ["AWS ends the function dorylax after 60 s"]),
        ({"Timeout": 900}, 30.0, ["given up after tensor.deadline = 30 s, but the function dorylax goes on"]),
        ({"MemorySize": 128}, None, ["has 128 MB of memory"]),
    ],
)
def test_surprises(change: dict[str, Any], deadline: float | None, texts: list[str]) -> None:
    found = warnings_of(READY | change, deadline)
    assert len(found) == len(texts)
    for warning, text in zip(found, texts, strict=True):
        assert text in warning


def test_concurrency_is_reserved_or_shared() -> None:
    assert reserved_calls({"Configuration": READY}) is None
    assert reserved_calls({"Concurrency": {"ReservedConcurrentExecutions": 7}}) == 7
    assert shared_calls({"AccountLimit": {"UnreservedConcurrentExecutions": 900}}) == 900


def test_a_function_that_is_switched_off() -> None:
    with pytest.raises(RunError, match="may not run at all, its reserved_concurrency is 0"):
        reserved_calls({"Concurrency": {"ReservedConcurrentExecutions": 0}})
