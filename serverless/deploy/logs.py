"""Reader of the function's log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, final

from dorylax.errors import InputError
from dorylax.serverless.deploy.clients import Clients, unless
from dorylax.serverless.deploy.names import Names


@final
class LogLine(NamedTuple):
    """Line of the log.

    Attributes:
        milliseconds: Unix time in milliseconds.
        text: Text without its newline.
        id: Event id of CloudWatch.
    """

    milliseconds: int
    text: str
    id: str


def lines_since(names: Names, clients: Clients, milliseconds: int) -> list[LogLine]:
    """Return the lines of all sandboxes since a Unix time in milliseconds, oldest first.

    Raises:
        InputError: If there is no log group.
    """
    return list(_events(names, clients, milliseconds))


def _events(names: Names, clients: Clients, since_milliseconds: int) -> Iterator[LogLine]:
    options: dict[str, Any] = {"logGroupName": names.log_group, "startTime": max(0, since_milliseconds)}
    while True:
        page = unless(
            {"ResourceNotFoundException"},
            lambda: clients("logs").filter_log_events(**options),
        )
        if page is None:
            raise InputError(f"there is no log group {names.log_group}: run `dorylax aws deploy` first")
        for event in page["events"]:
            yield LogLine(event["timestamp"], event["message"].rstrip("\n"), event["eventId"])
        if not page.get("nextToken"):
            return
        options["nextToken"] = page["nextToken"]
