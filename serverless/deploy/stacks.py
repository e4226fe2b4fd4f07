"""CloudFormation stacks: plans as change sets, their execution, and deletion.

CloudFormation holds the state, orders the changes, waits for other services, and rolls a failed change back. After an
interrupted command, CloudFormation continues the operation, and the next command waits for the end.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.clients import Clients, unless
from dorylax.serverless.deploy.names import TAG, Names
from dorylax.serverless.deploy.template import Template

_SECONDS = 3.0
_KINDS = {
    "AWS::ECR::Repository": "repository",
    "AWS::IAM::Policy": "policy",
    "AWS::IAM::Role": "role",
    "AWS::Lambda::Function": "function",
    "AWS::Logs::LogGroup": "log group",
}
_VERBS = {"Add": "create", "Modify": "update", "Remove": "delete"}
# Texts of a change set without changes, which CloudFormation counts as failed.
_UNCHANGED = ("didn't contain changes", "No updates are to be performed")
_DIGEST = re.compile(r"(@sha256:[0-9a-f]{12})[0-9a-f]+")
_SHOWN = 60


class Change(NamedTuple):
    """One step of a plan.

    Attributes:
        verb: "create", "update", "replace", "delete", or "keep".
        kind: Kind of the resource.
        name: Name of the resource.
        reason: Reason shown to the user.
    """

    verb: str
    kind: str
    name: str
    reason: str


class Plan(NamedTuple):
    """Pending changes of a stack.

    Attributes:
        changes: One entry per resource to change, or one "keep" for the stack.
        apply: Function that makes the changes and waits for their end. Raises RunError if CloudFormation rolls them back.
        discard: Function that gives the plan up.
    """

    changes: tuple[Change, ...]
    apply: Callable[[], None] = lambda: None
    discard: Callable[[], None] = lambda: None


@final
class Stack:
    """A stack of CloudFormation.

    Args:
        names: Names of the deployment that owns the stack.
        name: Name of the stack.
        clients: AWS clients of the region.
    """

    def __init__(self, names: Names, name: str, clients: Clients) -> None:
        self._names, self.name, self._client = names, name, clients("cloudformation")

    def describe(self) -> Mapping[str, Any] | None:
        """Return CloudFormation's description of the stack, or None if there is no such stack.

        Raises:
            InputError: If the stack lacks the deployment's tag.
        """
        found = self._described(self.name)
        if found is not None and {"Key": TAG, "Value": self._names.name} not in found.get("Tags", ()):
            raise InputError(
                f"the stack {self.name} must have the tag {TAG}={self._names.name}, and has not: somebody else made it; "
                "choose another --name"
            )
        return found

    def settled(self) -> Mapping[str, Any] | None:
        """Wait for the end of the current operation, if any, and return what `describe` returns then."""
        while (found := self.describe()) is not None and _in_progress(found):
            time.sleep(_SECONDS)
        return found

    def plan(self, template: Template) -> Plan:
        """Plan the changes that bring the stack to a template.

        Raises:
            RunError: If the stack cannot be changed or the template is refused.
            InputError: If the stack lacks the deployment's tag.
        """
        found = self.settled()
        if found is None:
            return Plan(creation(template), lambda: self._create(template))
        if found["StackStatus"].endswith("FAILED") or found["StackStatus"] == "ROLLBACK_COMPLETE":
            raise RunError(
                f"the stack {self.name} is {found['StackStatus']} ({self._failure(found['StackId'])}): run "
                f"`dorylax aws teardown --name {self._names.name}`, then deploy again"
            )
        name = f"dorylax-{uuid.uuid4().hex}"
        arguments = {"ChangeSetName": name, "ChangeSetType": "UPDATE", **self._arguments(template)}
        made = self._client.create_change_set(**arguments)["Id"]
        while (described := self._change_set(made))["Status"] in ("CREATE_PENDING", "CREATE_IN_PROGRESS"):
            time.sleep(_SECONDS)
        if described["Status"] == "FAILED":
            self._discard(made)
            reason = described.get("StatusReason", "no reason given")
            if not any(text in reason for text in _UNCHANGED):
                raise RunError(f"CloudFormation refuses the changes of the stack {self.name}: {reason}")
            return Plan((Change("keep", "stack", self.name, "as wanted"),))
        changes = tuple(_change(one["ResourceChange"]) for one in described["Changes"])
        return Plan(changes, lambda: self._execute(made, found["StackId"]), lambda: self._discard(made))

    def deletion(self) -> tuple[Change, ...]:
        """List the resources that `delete` would delete."""
        if self.settled() is None:
            return ()
        pages = self._client.get_paginator("list_stack_resources").paginate(StackName=self.name)
        found = [resource for page in pages for resource in page["StackResourceSummaries"]]
        rows = [(_kind(one["ResourceType"]), one.get("PhysicalResourceId", one["LogicalResourceId"])) for one in found]
        return tuple(Change("delete", kind, name, f"of the stack {self.name}") for kind, name in rows)

    def delete(self, *, wait: bool = True) -> None:
        """Delete the stack and its resources. Does nothing if there is no such stack.

        Args:
            wait: Whether to wait for the end.

        Raises:
            RunError: If a resource cannot be deleted.
        """
        if (found := self.settled()) is not None:
            self._client.delete_stack(StackName=found["StackId"])
            if wait:
                self._finish(found["StackId"], "DELETE_COMPLETE")

    def _create(self, template: Template) -> None:
        # A stack whose creation failed could only be deleted.
        stack = self._client.create_stack(OnFailure="DELETE", **self._arguments(template))["StackId"]
        self._finish(stack, "CREATE_COMPLETE")

    def _execute(self, change_set: str, stack: str) -> None:
        self._client.execute_change_set(StackName=self.name, ChangeSetName=change_set)
        self._finish(stack, "UPDATE_COMPLETE")

    def _change_set(self, change_set: str) -> Mapping[str, Any]:
        described: Mapping[str, Any] = self._client.describe_change_set(
            StackName=self.name, ChangeSetName=change_set, IncludePropertyValues=True
        )
        return described

    def _discard(self, change_set: str) -> None:
        self._client.delete_change_set(StackName=self.name, ChangeSetName=change_set)

    def _arguments(self, template: Template) -> dict[str, Any]:
        return {
            "StackName": self.name,
            "TemplateBody": json.dumps(template),
            "Capabilities": ["CAPABILITY_NAMED_IAM"],
            "Tags": [{"Key": key, "Value": value} for key, value in self._names.tags.items()],
        }

    def _finish(self, stack: str, wanted: str) -> None:
        """Wait for the end of an operation. Raises RunError with the first failure unless it ends as wanted."""
        while (found := self._described(stack)) is not None and _in_progress(found):
            time.sleep(_SECONDS)
        status = "DELETE_COMPLETE" if found is None else found["StackStatus"]
        if status != wanted:
            verb = wanted.partition("_")[0].lower()
            raise RunError(f"the stack {self.name} could not be {verb}d, and is {status}: {self._failure(stack)}")

    def _described(self, stack: str) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = unless(
            {"ValidationError"}, lambda: self._client.describe_stacks(StackName=stack)["Stacks"][0]
        )
        return found

    def _failure(self, stack: str) -> str:
        """Return the first failure of the last operation, whose consequences are the later failures."""
        reason = "CloudFormation gives no reason"
        for page in self._client.get_paginator("describe_stack_events").paginate(StackName=stack):
            for event in page["StackEvents"]:  # newest first
                name, told = event.get("PhysicalResourceId", ""), event.get("ResourceStatusReason", "")
                if event["ResourceStatus"].endswith("_FAILED"):
                    reason = f"{_kind(event['ResourceType'])} {name or event['LogicalResourceId']}: {told}"
                if name == event["StackId"] and told == "User Initiated":
                    return reason
        return reason


def creation(template: Template) -> tuple[Change, ...]:
    """List the changes that create a stack from a template."""
    found = []
    for resource in template["Resources"].values():
        name = next(value for key, value in resource["Properties"].items() if key.endswith("Name"))
        found.append(Change("create", _kind(resource["Type"]), name, "missing"))
    return tuple(found)


def _change(change: Mapping[str, Any]) -> Change:
    verb = _VERBS.get(change["Action"], change["Action"].lower())
    if change.get("Replacement") == "True":
        verb = "replace"
    name = change.get("PhysicalResourceId") or change["LogicalResourceId"]
    return Change(verb, _kind(change["ResourceType"]), name, _reason(change.get("Details", ())))


def _reason(details: Sequence[Mapping[str, Any]]) -> str:
    reasons: dict[str, None] = {}
    for target in (detail["Target"] for detail in details):
        what = target.get("Name") or target["Attribute"]
        before, after = (_shown(target.get(key)) for key in ("BeforeValue", "AfterValue"))
        reasons[f"{what} {before} → {after}" if before or after else what] = None
    return ", ".join(reasons)


def _shown(value: str | None) -> str:
    text = _DIGEST.sub(r"\1…", value or "")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _kind(resource_type: str) -> str:
    return _KINDS.get(resource_type, resource_type)


def _in_progress(described: Mapping[str, Any]) -> bool:
    status: str = described["StackStatus"]
    return status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS"
