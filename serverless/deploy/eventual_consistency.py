"""Waits out refusals of AWS that come from its eventual consistency: an earlier change is not known everywhere yet."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from dorylax.serverless.deploy.clients import is_refused

_AGAIN_SECONDS = 2.0


class NotYet(NamedTuple):
    """A reason to call again.

    Attributes:
        codes, texts: a refusal counts if it has one of these codes, and one of these texts in its message.
        seconds: how long to keep trying.
    """

    codes: set[str]
    texts: tuple[str, ...]
    seconds: float


PROPAGATING = NotYet(
    {"InvalidParameterValueException", "AccessDeniedException"},
    ("cannot be assumed", "does not have permission"),
    60.0,
)
"""The role, its rights or the repository's policy are new, and not known everywhere yet."""

NEW_ROLE = NotYet({"NoSuchEntity"}, ("",), 60.0)
"""The role is new, and not known to all of IAM."""

NEW_BOUNDARY = NotYet({"AccessDenied"}, ("iam:PutRolePolicy",), 20.0)
"""The role's permissions boundary is new, and rights may be given only to a role that has it."""

CHANGING = NotYet({"ResourceConflictException"}, ("cannot be performed at this time",), 300.0)
"""The function is being created or updated. (One that exists already has the same code and another text.)"""


def until_consistent(
    call: Callable[[], object], *reasons: NotYet, now: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Makes a call, and repeats it while AWS refuses it for one of the reasons; the last refusal is raised.

    Args:
        call: does nothing where it is refused.
        reasons: each has its own time.
        now: the time, in seconds.
        sleep: waits for a number of seconds.
    """
    for reason in reasons:
        call = functools.partial(_while_refused, call, reason, now() + reason.seconds, now, sleep)
    call()


def _while_refused(
    call: Callable[[], object],
    reason: NotYet,
    end: float,
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    while now() < end:
        if not is_refused(reason.codes, reason.texts, call):
            return
        sleep(_AGAIN_SECONDS)
    call()
