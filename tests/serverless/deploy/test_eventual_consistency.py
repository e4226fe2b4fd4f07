"""Which refusals are waited out, for how long, and which are final."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.manual_clock import ManualClock

from dorylax.serverless.deploy.eventual_consistency import CHANGING, PROPAGATING, until_consistent

errors = pytest.importorskip("botocore.exceptions", reason="needs boto3")

SPREADS = ("InvalidParameterValueException", "The role defined for the function cannot be assumed by Lambda.")
CHANGES = ("ResourceConflictException", "The operation cannot be performed at this time. An update is in progress")


def refusing(clock: ManualClock, *answers: tuple[str, str, float]) -> Callable[[], None]:
    """A call that is refused with a code and a text until some time, one after the other."""

    def call() -> None:
        for code, text, until in answers:
            if clock.time < until:
                raise errors.ClientError({"Error": {"Code": code, "Message": text}}, "CreateFunction")

    return call


def test_one_reason_after_the_other_passes() -> None:
    clock = ManualClock()
    call = refusing(clock, (*CHANGES, 9.0), (*SPREADS, 30.0), (*CHANGES, 50.0))
    until_consistent(call, PROPAGATING, CHANGING, now=clock.now, sleep=clock.sleep)
    assert clock.time == 50.0


@pytest.mark.parametrize(("answer", "seconds"), [(SPREADS, PROPAGATING.seconds), (CHANGES, CHANGING.seconds)])
def test_each_has_its_time(answer: tuple[str, str], seconds: float) -> None:
    clock = ManualClock()
    with pytest.raises(errors.ClientError, match=answer[0]):
        until_consistent(refusing(clock, (*answer, 1e9)), PROPAGATING, CHANGING, now=clock.now, sleep=clock.sleep)
    assert clock.time == seconds


@pytest.mark.parametrize(
    "answer",
    [
        ("ResourceConflictException", "Function already exist: gnn"),
        ("AccessDeniedException", "User: me is not authorized to perform: lambda:CreateFunction"),
        ("InvalidParameterValueException", "Subnet subnet-0a not found"),
        ("ServiceException", CHANGES[1]),
    ],
)
def test_other_refusals_are_final(answer: tuple[str, str]) -> None:
    clock = ManualClock()
    with pytest.raises(errors.ClientError, match=answer[0]):
        until_consistent(refusing(clock, (*answer, 1.0)), PROPAGATING, CHANGING, now=clock.now, sleep=clock.sleep)
    assert clock.time == 0.0
