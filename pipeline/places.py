"""Locations of errors (server, interval, epoch and step) as notes of exceptions."""

from __future__ import annotations

_SERVERS = ("graph server ", "parameter server ")  # prefixes of these notes


def note_place(error: Exception, place: str) -> None:
    """Add the location of an error as a note, unless the error has a more precise one.

    Args:
        error: The error, which ends the run.
        place: Location, such as "graph server 1, interval 5, epoch 3, GA".
    """
    if place_of(error) is None:
        error.add_note(place)


def place_of(error: BaseException) -> str | None:
    """Return the location that `note_place` has added, or None."""
    return next((note for note in getattr(error, "__notes__", ()) if note.startswith(_SERVERS)), None)
