"""Retries of AWS calls that fail because an earlier change has not propagated yet (eventual consistency)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from dorylax.serverless.deploy.clients import is_refused

_AGAIN_SECONDS = 2.0


class NotYet(NamedTuple):
    """Temporary refusal that justifies a retry.

    Attributes:
        codes: Error codes of the refusal.
        texts: Texts of which the error message contains at least one.
        seconds: Time limit of the retries in seconds.
    """

    codes: set[str]
    texts: tuple[str, ...]
    seconds: float


PROPAGATING = NotYet(
    {"InvalidParameterValueException", "AccessDeniedException"},
    ("cannot be assumed", "does not have permission"),
    60.0,
)
"""Refusal while the role, its policies, or the repository's policy are propagating."""

NEW_ROLE = NotYet({"NoSuchEntity"}, ("",), 60.0)
"""Refusal while a new role is propagating in IAM."""

NEW_BOUNDARY = NotYet({"AccessDenied"}, ("iam:PutRolePolicy",), 20.0)
"""Refusal while the role's permissions boundary is propagating, since policies require a role with the boundary."""

CHANGING = NotYet({"ResourceConflictException"}, ("cannot be performed at this time",), 300.0)
"""Refusal while the function is being created or updated. (An existing function has the same code but another text.)"""


def until_consistent(
    call: Callable[[], object], *reasons: NotYet, now: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Make a call, and retry it while AWS refuses it for one of the reasons. Raises the last refusal.

    Args:
        call: Call without effect when refused.
        reasons: Refusals to retry, each with a separate time limit.
        now: Clock in seconds.
        sleep: Function that waits for a number of seconds.
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
