"""Where an error happened: which server, interval, epoch and step, as a note of the exception."""

from __future__ import annotations

_SERVERS = ("graph server ", "parameter server ")  # what such notes begin with


def note_place(error: Exception, place: str) -> None:
    """Notes where an error happened, unless that is known more closely.

    Args:
        error: on its way to whoever ends the run.
        place: "graph server 1, interval 5, epoch 3, GA".
    """
    if place_of(error) is None:
        error.add_note(place)


def place_of(error: BaseException) -> str | None:
    """What `note_place` has noted."""
    return next((note for note in getattr(error, "__notes__", ()) if note.startswith(_SERVERS)), None)
