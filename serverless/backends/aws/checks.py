"""What AWS says of a function before it is used: whether it can be invoked, how long and how often at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from dorylax.errors import RunError
from dorylax.settings.errors import ConfigError

_LEAST_MEMORY = 512
"""MB; JAX alone takes 200 to 300."""


class FunctionName(NamedTuple):
    """A function, and its version or alias; None: the newest."""

    name: str
    qualifier: str | None

    @classmethod
    def of(cls, text: str) -> FunctionName:
        """From `name`, `name:alias` or an ARN, which may end with an alias too.

        Raises:
            ConfigError: it is not one.
        """
        parts = text.split(":")
        last = 6 if text.startswith("arn:") else 0  # arn:aws:lambda:region:account:function:name
        name, rest = ":".join(parts[: last + 1]), parts[last + 1 :]
        if len(parts) <= last or not parts[last] or len(rest) > 1 or rest == [""]:
            raise ConfigError.of("tensor.function", f"must be a name, name:alias or a function's ARN, got {text!r}")
        return cls(name, rest[0] if rest else None)

    @property
    def region(self) -> str | None:
        """Of an ARN; None of a name."""
        return self.name.split(":")[3] if self.name.startswith("arn:") else None

    def parameters(self) -> dict[str, str]:
        """As parameters of a request."""
        return {"FunctionName": self.name} | ({} if self.qualifier is None else {"Qualifier": self.qualifier})


def state_of(configuration: Mapping[str, Any]) -> Literal["ready", "changing"]:
    """Whether a function can be invoked.

    Args:
        configuration: the `Configuration` that GetFunction gave.

    Raises:
        RunError: it never can be.
    """
    name, state = configuration.get("FunctionName"), configuration.get("State", "Active")
    update = configuration.get("LastUpdateStatus", "Successful")
    if state == "Failed":
        reason = configuration.get("StateReason", "no reason given")
        raise RunError(f"the function {name} could not be made ({reason}): dorylax aws teardown, then deploy it again")
    if update == "Failed":
        reason = configuration.get("LastUpdateStatusReason", "no reason given")
        raise RunError(f"the function {name} could not be changed ({reason}): dorylax aws deploy")
    # One that was idle for weeks is "Inactive", and its next invocation sets it up again.
    return "changing" if state == "Pending" or update == "InProgress" else "ready"


def warnings_of(configuration: Mapping[str, Any], deadline: float | None) -> list[str]:
    """What may surprise the user.

    Args:
        configuration: the `Configuration` that GetFunction gave.
        deadline: seconds that a call may take; None: as long as the function allows.
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
    """Calls at a time that are reserved for a function, which also limit it; None: it shares the account's.

    Args:
        function: what GetFunction gave.

    Raises:
        RunError: it is 0.
    """
    reserved = function.get("Concurrency", {}).get("ReservedConcurrentExecutions")
    if reserved is not None and int(reserved) < 1:
        raise RunError(
            "the function may not run at all, its reserved_concurrency is 0: dorylax aws deploy with another one"
        )
    return None if reserved is None else int(reserved)


def shared_calls(account: Mapping[str, Any]) -> int:
    """Calls at a time of all functions together that have none reserved.

    Args:
        account: what GetAccountSettings gave.
    """
    return int(account["AccountLimit"]["UnreservedConcurrentExecutions"])
