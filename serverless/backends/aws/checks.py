"""Pure checks of a Lambda function's state, limits, and concurrency, as reported by AWS before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from dorylax.errors import RunError
from dorylax.settings.errors import ConfigError

_LEAST_MEMORY = 512
"""Recommended minimum memory in MB. JAX alone uses 200 to 300 MB."""


class FunctionName(NamedTuple):
    """Function name or ARN, and its version or alias (None for the latest version)."""

    name: str
    qualifier: str | None

    @classmethod
    def of(cls, text: str) -> FunctionName:
        """Parse `name`, `name:alias`, or an ARN with an optional alias.

        Raises:
            ConfigError: If the text has none of these forms.
        """
        parts = text.split(":")
        last = 6 if text.startswith("arn:") else 0  # arn:aws:lambda:region:account:function:name
        name, rest = ":".join(parts[: last + 1]), parts[last + 1 :]
        if len(parts) <= last or not parts[last] or len(rest) > 1 or rest == [""]:
            raise ConfigError.of("tensor.function", f"must be a name, name:alias or a function's ARN, got {text!r}")
        return cls(name, rest[0] if rest else None)

    @property
    def region(self) -> str | None:
        """Region of an ARN, or None for a plain name."""
        return self.name.split(":")[3] if self.name.startswith("arn:") else None

    def parameters(self) -> dict[str, str]:
        """Return the parameters for a boto3 request."""
        return {"FunctionName": self.name} | ({} if self.qualifier is None else {"Qualifier": self.qualifier})


def state_of(configuration: Mapping[str, Any]) -> Literal["ready", "changing"]:
    """Return whether a function can be invoked now, or is still changing.

    Args:
        configuration: `Configuration` in the response of GetFunction.

    Raises:
        RunError: If the creation or the last update of the function failed.
    """
    name, state = configuration.get("FunctionName"), configuration.get("State", "Active")
    update = configuration.get("LastUpdateStatus", "Successful")
    if state == "Failed":
        reason = configuration.get("StateReason", "no reason given")
        raise RunError(f"the function {name} could not be made ({reason}): dorylax aws teardown, then deploy it again")
    if update == "Failed":
        reason = configuration.get("LastUpdateStatusReason", "no reason given")
        raise RunError(f"the function {name} could not be changed ({reason}): dorylax aws deploy")
    # A function idle for weeks is "Inactive". Its next invocation reactivates it.
    return "changing" if state == "Pending" or update == "InProgress" else "ready"


def warnings_of(configuration: Mapping[str, Any], deadline: float | None) -> list[str]:
    """Return warnings about the function's time and memory limits.

    Args:
        configuration: `Configuration` in the response of GetFunction.
        deadline: Time limit per call in seconds, or None for the function's own limit.
    """
    found, name = [], configuration.get("FunctionName")
    timeout, memory = configuration.get("Timeout"), configuration.get("MemorySize")
    if deadline is not None and timeout is not None and timeout != deadline:
        found.append(
            f"calls may take tensor.deadline = {deadline:g} s, but AWS ends the function {name} after {timeout} s"
            if timeout < deadline
            else f"calls are given up after tensor.deadline = {deadline:g} s, but the function {name} goes on, and costs, "
            f"for up to {timeout} s: deploy it with that timeout"
        )
    if memory is not None and memory < _LEAST_MEMORY:
        found.append(f"the function {name} has {memory} MB of memory: stages need {_LEAST_MEMORY} MB or more")
    return found


def reserved_calls(function: Mapping[str, Any]) -> int | None:
    """Return the function's reserved concurrency, or None if it shares the account's concurrency.

    The reserved concurrency also limits the function.

    Args:
        function: Response of GetFunction.

    Raises:
        RunError: If the reserved concurrency is 0.
    """
    reserved = function.get("Concurrency", {}).get("ReservedConcurrentExecutions")
    if reserved is not None and int(reserved) < 1:
        raise RunError(
            "the function may not run at all, its reserved_concurrency is 0: dorylax aws deploy with another one"
        )
    return None if reserved is None else int(reserved)


def shared_calls(account: Mapping[str, Any]) -> int:
    """Return the concurrency shared by all functions without a reservation.

    Args:
        account: Response of GetAccountSettings.
    """
    return int(account["AccountLimit"]["UnreservedConcurrentExecutions"])
