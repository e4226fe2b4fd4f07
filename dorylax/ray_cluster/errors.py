"""What Ray's errors say, without Ray's words around it."""

from __future__ import annotations

import re

_SHOWN = 400
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_DEATH = re.compile(r"The actor (?:is dead|died) because (.*?)(?: Some common causes include|$)", re.DOTALL)
_SILENCE = re.compile(r"The actor is temporarily unavailable: (.*?)(?: The task may or may not|$)", re.DOTALL)
_FRAME = re.compile(r"^(?:\[.*\] )?Traceback |^  File ", re.MULTILINE)


def cause_of(error: BaseException) -> str:
    """Why a call of an actor has failed, in one line of bounded length.

    Args:
        error: Ray's. What the actor's own code raised is its `cause`, or, where that was its constructor, the end of a
            traceback in its text; why a process has ended is a sentence among advice.
    """
    raised = getattr(error, "cause", None)
    text = _COLOURS.sub("", str(error) if raised is None else f"{type(raised).__name__}: {raised}")
    if raised is None:
        if _FRAME.search(text):
            text = _end_of_traceback(text)
        elif (death := _DEATH.search(text)) is not None:
            text = death[1]
        elif (silence := _SILENCE.search(text)) is not None:
            text = f"its node cannot be reached any more: {silence[1]}"
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _end_of_traceback(text: str) -> str:
    """What comes after the last frame, which is indented."""
    lines = text.rstrip().splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    return "\n".join(lines[frames[-1] + 1 :]) or lines[-1]
