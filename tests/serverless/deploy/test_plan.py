"""The steps from what exists to what is wanted."""

from __future__ import annotations

import dataclasses

import pytest

from dorylax.errors import InputError
from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.found import Found, FoundFunction, FoundLogGroup, FoundRepository, FoundRole
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.plan import Wanted, plan_deploy, plan_teardown
from dorylax.serverless.deploy.settings import Deployment

NAMES = Names("gnn", "123456789012", "eu-west-1")
TAGS = {"dorylax": "gnn", "cost": "mine"}
DIGEST = f"sha256:{7:064x}"
VPC = {"subnets": ("subnet-0b", "subnet-0a"), "security_groups": ("sg-0c",)}


def wanted(tag: str | None = "1", **settings: object) -> Wanted:
    deployment = Deployment(name="gnn", region="eu-west-1", **settings)
    return Wanted(deployment, NAMES, NAMES.image(tag) if tag else f"elsewhere/image@{DIGEST}", tag)


def role(*, vpc: bool) -> FoundRole:
    return FoundRole(policies.trust_policy(), policies.role_policies(NAMES, vpc=vpc), (), NAMES.boundary_arn, TAGS)


def repository(**others: object) -> FoundRepository:
    whole = FoundRepository(policies.repository_policy(NAMES), {DIGEST: ("1",)}, True, True, TAGS)
    return dataclasses.replace(whole, **others)


def found(function: dict | None = None, **others: object) -> Found:
    """A finished deployment of `wanted()`, but for what is given."""
    whole = FoundFunction(
        image=NAMES.pinned_image(DIGEST),
        digest=DIGEST,
        architecture="x86_64",
        memory_mb=1769,
        timeout_seconds=900,
        role_arn=NAMES.role_arn,
        subnets=(),
        security_groups=(),
        reserved_concurrency=None,
        state="Active",
        update="Successful",
        problem=None,
        modified="2026-11-01T00:00:00.000+0000",
        tags=TAGS,
    )
    there = Found(
        function=dataclasses.replace(whole, **function or {}),
        role=role(vpc=False),
        log_group=FoundLogGroup(7, TAGS),
        repository=repository(),
        boundary=policies.boundary_policy(NAMES, vpc=True),
    )
    return dataclasses.replace(there, **others)


def steps(actions) -> list[tuple[str, str]]:
    return [(action.verb, action.kind) for action in actions]


def changes(actions) -> list[tuple[str, str, str]]:
    return [(action.verb, action.kind, action.reason) for action in actions if action.verb != "keep"]


def test_from_nothing_each_step_has_what_it_needs_before_it() -> None:
    bounded = Found(boundary=policies.boundary_policy(NAMES, vpc=False))
    assert steps(plan_deploy(wanted(reserved_concurrency=5), bounded)) == [
        ("keep", "permissions boundary"),
        ("create", "repository"),
        ("create", "image"),
        ("create", "log group"),
        ("create", "role"),
        ("create", "function"),
        ("create", "concurrency"),
    ]


def test_an_image_from_elsewhere_needs_no_repository() -> None:
    actions = plan_deploy(wanted(tag=None), found({"image": f"elsewhere/image@{DIGEST}"}, repository=None))
    assert steps(actions) == [("keep", kind) for kind in ("permissions boundary", "log group", "role", "function")]


@pytest.mark.parametrize(
    ("there", "settings", "problem"),
    [
        (None, {}, "there is none"),
        ({"Version": "2012-10-17", "Statement": []}, {}, "it is not the one that this deployment needs"),
        (policies.boundary_policy(NAMES, vpc=False), VPC, "it is not the one that this deployment needs"),
        (policies.boundary_policy(Names("other", NAMES.account, NAMES.region), vpc=False), {}, "it is not the one"),
        (policies.boundary_policy(NAMES, vpc=False), {}, None),
        (policies.boundary_policy(NAMES, vpc=True), {}, None),
        (policies.boundary_policy(NAMES, vpc=True), VPC, None),
    ],
)
def test_an_administrator_makes_the_boundary_before_all_else(
    there: dict | None, settings: dict, problem: str | None
) -> None:
    first = plan_deploy(wanted(**settings), found(boundary=there))[0]
    assert (first.kind, first.name) == ("permissions boundary", NAMES.boundary)
    assert first.verb == ("keep" if problem is None else "ask")
    if problem is not None:
        assert first.reason.startswith(problem)
        assert first.reason.endswith('an administrator makes it, as docs/aws.md says under "The permissions boundary"')


@pytest.mark.parametrize("boundary", [None, "arn:aws:iam::aws:policy/AdministratorAccess"])
def test_a_role_of_an_older_release_gets_the_boundary(boundary: str | None) -> None:
    [update] = changes(plan_deploy(wanted(), found(role=dataclasses.replace(role(vpc=False), boundary=boundary))))
    assert update == ("update", "role", "its permissions boundary is missing or another")


def test_a_function_of_an_older_release_gets_its_image_by_digest() -> None:
    [update] = changes(plan_deploy(wanted(), found({"image": NAMES.image("1")})))
    assert update == ("update", "function", "image gnn:1 → gnn@sha256:000000000000…")
    # Its image is gone, too.
    lost = changes(plan_deploy(wanted(), found({"image": NAMES.image("1")}, repository=repository(images={}))))
    assert [step[:2] for step in lost] == [("create", "image"), ("update", "function")]


@pytest.mark.parametrize(
    ("settings", "reason", "changed"),
    [
        ({"memory_mb": 3008}, "memory 1769 → 3008", {"memory"}),
        ({"timeout_seconds": 60}, "timeout 900 → 60", {"timeout"}),
        ({"architecture": "arm64"}, "architecture x86_64 → arm64", {"architecture"}),
    ],
)
def test_a_changed_setting_updates_the_function_alone(settings: dict, reason: str, changed: set[str]) -> None:
    [action] = [action for action in plan_deploy(wanted(**settings), found()) if action.verb != "keep"]
    assert (action.verb, action.kind, action.reason, action.changes) == ("update", "function", reason, changed)


def test_a_new_image_is_pushed_before_the_function_has_it_and_the_old_one_goes_after() -> None:
    actions = changes(plan_deploy(wanted(tag="2"), found()))
    assert [step[:2] for step in actions] == [("create", "image"), ("update", "function"), ("delete", "old images")]
    assert actions[1][2] == "image gnn@sha256:000000000000… → gnn:2, by its digest"


def test_into_a_vpc_and_out_again() -> None:
    into = changes(plan_deploy(wanted(**VPC), found()))
    assert [step[:2] for step in into] == [("update", "role"), ("update", "function")]
    assert into[1][2] == "subnets none → subnet-0a+subnet-0b, security groups none → sg-0c"
    inside = {"subnets": ("subnet-0a", "subnet-0b"), "security_groups": ("sg-0c",)}
    in_it = role(vpc=True)
    assert changes(plan_deploy(wanted(**VPC), found(inside, role=in_it))) == []
    # Lambda leaves it with the role's rights, which go when the interfaces have gone.
    assert [step[:2] for step in changes(plan_deploy(wanted(), found(inside, role=in_it)))] == [("update", "function")]
    assert changes(plan_deploy(wanted(), found(role=in_it, network_interfaces=2))) == []
    after = plan_deploy(wanted(), found(role=in_it))
    assert changes(after) == [("update", "role", "its rights are not those on its log alone")]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (None, None, []),
        (5, 5, []),
        (5, None, [("create", "concurrency", "none → 5 reserved")]),
        (5, 9, [("update", "concurrency", "9 → 5 reserved")]),
        (None, 9, [("delete", "concurrency", "9 reserved → none")]),
    ],
)
def test_concurrency(new: int | None, old: int | None, expected: list) -> None:
    actions = plan_deploy(wanted(reserved_concurrency=new), found({"reserved_concurrency": old}))
    assert changes(actions) == expected


def test_what_others_changed_is_put_right() -> None:
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}]}
    more = policies.role_policies(NAMES, vpc=False) | {"more": policies.trust_policy()}
    for there, step in (
        ({"role": dataclasses.replace(role(vpc=False), policies=more)}, ("update", "role")),
        ({"log_group": FoundLogGroup(None, TAGS)}, ("update", "log group")),
        ({"repository": repository(policy=None)}, ("update", "repository")),
        ({"repository": repository(scans=False)}, ("update", "repository")),
        ({"repository": repository(immutable=False)}, ("update", "repository")),
    ):
        assert [found_step[:2] for found_step in changes(plan_deploy(wanted(), found(**there)))] == [step]
    # Who deploys may not change who takes a role: it is made again.
    taken = changes(plan_deploy(wanted(), found(role=dataclasses.replace(role(vpc=False), trust=trust))))
    assert [step[:2] for step in taken] == [("delete", "role"), ("create", "role"), ("update", "function")]


def test_a_function_that_has_failed() -> None:
    made = changes(plan_deploy(wanted(), found({"state": "Failed", "problem": "no image"})))
    assert made == [
        ("delete", "function", "it could not be made: no image"),
        ("create", "function", "x86_64, 1769 MB, 900 s"),
    ]
    [updated] = changes(plan_deploy(wanted(), found({"update": "Failed", "problem": "no rights"})))
    assert updated == ("update", "function", "its last update failed: no rights")


@pytest.mark.parametrize("state", [{"state": "Pending"}, {"update": "InProgress"}])
def test_a_function_that_aws_is_still_making(state: dict) -> None:
    assert [step[:2] for step in changes(plan_deploy(wanted(), found(state)))] == [("wait", "function")]
    assert [step[:2] for step in changes(plan_deploy(wanted(memory_mb=3008), found(state)))] == [("update", "function")]


def test_a_role_that_was_made_again_is_given_to_the_function_again() -> None:
    actions = plan_deploy(wanted(), found(role=None))
    assert [step[:2] for step in changes(actions)] == [("create", "role"), ("update", "function")]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("function", "function gnn must have the tag dorylax=gnn"),
        ("role", "role gnn-eu-west-1 must have the tag"),
        ("log_group", "log group /aws/lambda/gnn must have the tag"),
        ("repository", "repository gnn must have the tag"),
    ],
)
@pytest.mark.parametrize("tags", [{}, {"dorylax": "other"}])
def test_what_is_somebody_else_s_is_not_touched(kind: str, text: str, tags: dict) -> None:
    there = found()
    there = dataclasses.replace(there, **{kind: dataclasses.replace(getattr(there, kind), tags=tags)})
    for plan in (lambda: plan_deploy(wanted(), there), lambda: plan_teardown(NAMES, there)):
        with pytest.raises(InputError, match="choose another --name") as caught:
            plan()
        assert str(caught.value).startswith(text)


def test_teardown_keeps_the_role_while_lambda_needs_it() -> None:
    deleted = dataclasses.replace(found(network_interfaces=1), function=None)
    for there in (found({"subnets": ("subnet-0a",)}), deleted):
        order = [kind for _, kind in steps(plan_teardown(NAMES, there))]
        assert order.index("network interfaces") < order.index("role")
        assert "network interfaces" not in [kind for _, kind in steps(plan_teardown(NAMES, there, wait=False))]
