"""Calls that AWS does not take yet, because what was done before them has not come to its end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from dorylax.serverless.deploy.clients import is_refused

_AGAIN_SECONDS = 2.0


class NotYet(NamedTuple):
    """A reason to ask again.

    Attributes:
        codes, texts: what AWS says: one of these codes, and one of these texts in its message.
        seconds: for how long at most.
    """

    codes: set[str]
    texts: tuple[str, ...]
    seconds: float


PROPAGATING = NotYet(
    {"InvalidParameterValueException", "AccessDeniedException"},
    ("cannot be assumed", "does not have permission"),
    60.0,
)
"""The role, its rights or the repository's policy are new, and not known everywhere."""

NEW_ROLE = NotYet({"NoSuchEntity"}, ("",), 60.0)
"""The role is new, and not known to all of IAM."""

CHANGING = NotYet({"ResourceConflictException"}, ("cannot be performed at this time",), 300.0)
"""The function is being made or changed. (That there is one already has the same code and another text.)"""


def until_consistent(
    call: Callable[[], object], *reasons: NotYet, now: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Makes a call, again and again while AWS has one of the reasons; then its refusal is raised.

    Args:
        call: may be refused, and has done nothing then.
        reasons: each for its own time.
        now: the time, in seconds.
        sleep: waits so many seconds.
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
