"""What Ray's errors say, shortened."""

from __future__ import annotations

_SHOWN = 400


def cause_of(error: BaseException) -> str:
    """Why a call of an actor has failed, in one line of bounded length."""
    raised = getattr(error, "cause", None)  # by the actor's own code; Ray's text is its traceback
    text = " ".join((str(error) if raised is None else f"{type(raised).__name__}: {raised}").split())
    text = text or type(error).__name__
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
