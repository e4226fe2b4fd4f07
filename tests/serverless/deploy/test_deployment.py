"""Deployments on moto: once, twice, half, against the resources of others, and down to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.mocked_aws import REGION, MockedAws, client, mocked_aws

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.clients import Clients, in_plain_words
from dorylax.serverless.deploy.deployment import check_unmanaged
from dorylax.serverless.deploy.deployment import deploy as deploy_function
from dorylax.serverless.deploy.function import artefact_keys, delete_artefacts, read_function
from dorylax.serverless.deploy.image.context import Context
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.policies import boundary_policy
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.stacks import Change, Stack
from dorylax.serverless.deploy.template import repository_template
from dorylax.store.base import Location

pytestmark = pytest.mark.usefixtures("engine")

NAMES = Names("gnn", "123456789012", REGION)
STACKS = (NAMES.function_stack, NAMES.repository_stack)
KEPT = [("keep", "stack"), ("keep", "image"), ("keep", "stack")]


@pytest.fixture(scope="module")
def made() -> Iterator[Clients]:
    """Clients, made once: it takes a second each."""
    with mocked_aws():
        found = Clients(REGION)
        for service in ("lambda", "invoke", "iam", "ecr", "logs", "s3", "sts"):
            found(service)
    yield found
    found.close()


@pytest.fixture
def clients(made: Clients, aws: MockedAws) -> Clients:
    """With the permissions boundary in place, which belongs to no deployment."""
    aws.make_boundary("gnn")
    return made


def context(tag: str) -> Context:
    return Context("x86_64", {"Dockerfile": tag.encode()}, "registry.example/base:1")


def deploy(clients: Clients, tag: str = "1", *, dry_run: bool = False, **settings: Any) -> list[tuple[str, str]]:
    """Deploys; gives the steps."""
    changes: list[Change] = []
    deployment = Deployment(name="gnn", region=REGION, **settings)
    with in_plain_words():
        deploy_function(
            deployment, context(tag), clients, NAMES, show=changes.extend, tell=lambda _: None, dry_run=dry_run
        )
    return [change[:2] for change in changes]


def teardown(clients: Clients) -> list[str]:
    kinds = []
    with in_plain_words():
        for stack in (Stack(NAMES, name, clients) for name in STACKS):
            kinds += [change.kind for change in stack.deletion()]
            stack.delete()
    return kinds


def nothing_of_it(aws: MockedAws) -> bool:
    """Whether only the boundary is left, which belongs to an administrator."""
    there = {kind: names for kind, names in aws.everything().items() if names}
    return there == {"policies": [NAMES.boundary]}


def test_deployed_twice_the_second_time_changes_nothing(aws: MockedAws, clients: Clients) -> None:
    steps = deploy(clients, reserved_concurrency=7)
    assert steps == [("create", kind) for kind in ("repository", "image", "log group", "role", "policy", "function")]
    function = read_function(NAMES, clients)
    assert (function.memory_mb, function.timeout_seconds, function.reserved_concurrency) == (1769, 900, 7)
    assert (function.architecture, function.state, function.update) == ("x86_64", "Active", "Successful")
    # By digest: no later push of that tag can change what runs.
    assert function.image == f"{NAMES.repository}@{function.digest}"
    for name in STACKS:
        assert Stack(NAMES, name, clients).describe()["Tags"] == [{"Key": "dorylax", "Value": "gnn"}]
    before = aws.everything()
    assert deploy(clients, reserved_concurrency=7) == KEPT
    assert aws.everything() == before
    assert read_function(NAMES, clients) == function


def test_a_change_updates_what_it_concerns(aws: MockedAws, clients: Clients) -> None:
    deploy(clients, reserved_concurrency=7)
    assert deploy(clients, memory_mb=3008) == [*KEPT[:2], ("update", "function")]
    function = read_function(NAMES, clients)
    assert (function.memory_mb, function.reserved_concurrency) == (3008, None)
    settings = {"memory_mb": 3008, "log_retention_days": 30, "timeout_seconds": 60}
    expected = [("keep", "stack"), ("create", "image"), ("update", "log group"), ("update", "function")]
    assert deploy(clients, "2", dry_run=True, **settings) == expected
    assert read_function(NAMES, clients) == function
    assert deploy(clients, "2", **settings) == expected
    new = read_function(NAMES, clients)
    assert (new.timeout_seconds, new.image == function.image) == (60, False)
    [group] = client("logs").describe_log_groups()["logGroups"]
    assert group["retentionInDays"] == 30
    assert deploy(clients, "2", **settings) == KEPT


def test_into_a_vpc_and_out_again(aws: MockedAws, clients: Clients) -> None:
    vpc = aws.make_network()
    deploy(clients)
    assert deploy(clients, **vpc) == [*KEPT[:2], ("update", "policy"), ("update", "function")]
    assert read_function(NAMES, clients).subnets == tuple(sorted(vpc["subnets"]))
    rights = client("iam").get_role_policy(RoleName=NAMES.role, PolicyName="function")["PolicyDocument"]
    assert rights == boundary_policy(NAMES, vpc=True)
    assert deploy(clients, **vpc) == KEPT
    # Lambda leaves it with the role's rights, which the next deployment removes.
    assert deploy(clients) == [*KEPT[:2], ("update", "function")]
    assert deploy(clients) == [*KEPT[:2], ("update", "policy")]
    assert deploy(clients) == KEPT


def broken_off(aws: MockedAws, at: int, act: Callable[[], Any]) -> bool:
    """Whether an act fails at its change number `at`; it does not where it has fewer."""
    aws.calls.clear()
    aws.fail_at = at
    try:
        act()
    except RunError:
        return True
    finally:
        aws.fail_at = None
    return False


def test_what_is_broken_off_at_any_call_goes_on_to_the_same_end(aws: MockedAws, clients: Clients) -> None:
    at = 0
    while broken_off(aws, at, lambda: deploy(clients)):
        deploy(clients)
        assert deploy(clients) == KEPT
        at += 1
        if at == 1:
            assert broken_off(aws, 1, lambda: teardown(clients))
        teardown(clients)
        assert nothing_of_it(aws)
    assert at == 3  # the repository's stack, the image, the function's stack


def test_an_operation_that_goes_on_is_waited_for(
    aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-C: CloudFormation has not heard of it."""
    from moto.cloudformation.models import cloudformation_backends

    deploy(clients)
    stacks = {stack.name: stack for stack in cloudformation_backends[NAMES.account][REGION].stacks.values()}
    stack, waited = stacks[NAMES.function_stack], []
    stack.status = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            stack.status = "UPDATE_COMPLETE"

    monkeypatch.setattr("time.sleep", sleep)
    assert deploy(clients) == KEPT
    assert len(waited) == 3


def fails_with(patch: pytest.MonkeyPatch, operation: str, status: str, *events: tuple[str, str]) -> None:
    """An operation of CloudFormation that ends in this status, with these events of the function."""
    from moto.cloudformation.models import CloudFormationBackend, Event

    act = getattr(CloudFormationBackend, operation)

    def failing(backend: Any, *given: Any, **named: Any) -> Any:
        result = act(backend, *given, **named)
        stack = next(one for one in backend.stacks.values() if one.name == NAMES.function_stack)
        verb = "CREATE" if operation == "create_stack" else "UPDATE"
        stack.events.clear()
        stack._add_stack_event(f"{verb}_IN_PROGRESS", resource_status_reason="User Initiated")
        for event, reason in events:
            kind = "AWS::Lambda::Function"
            stack.events.append(Event(stack.stack_id, stack.name, "Function", "gnn", kind, event, reason, None))
        stack.status = status
        return result

    patch.setattr(CloudFormationBackend, operation, failing)


def test_the_first_reason_of_a_rolled_back_change_is_told(
    aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(clients)
    told = (
        r"^the stack gnn-Function could not be updated, and is UPDATE_ROLLBACK_COMPLETE: function gnn: no such subnet$"
    )
    with monkeypatch.context() as patch:
        events = (("UPDATE_FAILED", "no such subnet"), ("UPDATE_FAILED", "cancelled"), ("UPDATE_COMPLETE", ""))
        fails_with(patch, "execute_change_set", "UPDATE_ROLLBACK_COMPLETE", *events)
        with pytest.raises(RunError, match=told):
            deploy(clients, memory_mb=3008)
    assert deploy(clients, memory_mb=2048)[-1] == ("update", "function")


def test_a_stack_that_is_stuck_is_torn_down(aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(clients)
    with monkeypatch.context() as patch:
        fails_with(patch, "execute_change_set", "UPDATE_ROLLBACK_FAILED", ("UPDATE_FAILED", "no rights"))
        with pytest.raises(RunError, match="could not be updated, and is UPDATE_ROLLBACK_FAILED: "):
            deploy(clients, memory_mb=3008)
    told = r"^the stack gnn-Function is UPDATE_ROLLBACK_FAILED \(function gnn: no rights\): run `dorylax aws teardown "
    with pytest.raises(RunError, match=told):
        deploy(clients)
    assert teardown(clients) == ["log group", "role", "policy", "function", "repository"]
    assert nothing_of_it(aws)


def test_a_first_deployment_that_fails_says_why(
    aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_with(monkeypatch, "create_stack", "DELETE_COMPLETE", ("CREATE_FAILED", "no image"))
    with pytest.raises(
        RunError, match=r"^the stack gnn-Function could not be created, and is DELETE_COMPLETE: .*: no image$"
    ):
        Stack(NAMES, NAMES.function_stack, clients).plan(repository_template(NAMES)).apply()


def test_a_refused_change_set_says_why(aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.cloudformation.models import CloudFormationBackend

    deploy(clients)
    make = CloudFormationBackend.create_change_set

    def refused(backend: Any, **given: Any) -> tuple[str, str]:
        made = make(backend, **given)
        change_set = backend.change_sets[made[0]]
        change_set.status, change_set.status_reason = "FAILED", "a name is taken"
        return made

    monkeypatch.setattr(CloudFormationBackend, "create_change_set", refused)
    with pytest.raises(
        RunError, match=r"^CloudFormation refuses the changes of the stack gnn-Repository: a name is taken$"
    ):
        deploy(clients)


def test_a_plan_shows_each_property(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto tells no details: these are as the API's reference has them."""
    deploy(clients)
    image = [
        {
            "Target": {
                "Attribute": "Properties",
                "Name": "Code",
                "BeforeValue": f"@sha256:{5:064x}",
                "AfterValue": "x" * 80,
            }
        }
    ]
    memory = {"Attribute": "Properties", "Name": "MemorySize", "BeforeValue": "1769", "AfterValue": "3008"}
    resource = {"LogicalResourceId": "Function", "PhysicalResourceId": "gnn", "ResourceType": "AWS::Lambda::Function"}
    changes = [
        resource
        | {"Action": "Modify", "Replacement": "False", "Details": [*image, {"Target": memory}, {"Target": memory}]},
        resource | {"Action": "Modify", "Replacement": "True", "Details": [{"Target": {"Attribute": "Tags"}}]},
        resource | {"Action": "Remove", "ResourceType": "AWS::Other::Thing"},
    ]
    described = {"Status": "CREATE_COMPLETE", "Changes": [{"ResourceChange": change} for change in changes]}
    stack = Stack(NAMES, NAMES.function_stack, clients)
    monkeypatch.setattr(clients("cloudformation"), "describe_change_set", lambda **_: described)
    code = f"Code @sha256:000000000000… → {'x' * 60}…"
    assert stack.plan(repository_template(NAMES)).changes == (
        ("update", "function", "gnn", f"{code}, MemorySize 1769 → 3008"),
        ("replace", "function", "gnn", "Tags"),
        ("delete", "AWS::Other::Thing", "gnn", ""),
    )


def test_nothing_is_made_without_the_boundary(aws: MockedAws, made: Clients) -> None:
    with pytest.raises(InputError, match=r"^permissions boundary gnn-eu-west-1-boundary: there is none: an admin"):
        deploy(made)
    aws.make_boundary("gnn", vpc=False)
    assert ("create", "function") in deploy(made)
    before = aws.everything()
    with pytest.raises(InputError, match=r"-boundary: it is not the one that this deployment needs: an administrator"):
        deploy(made, subnets=("subnet-0a",), security_groups=("sg-0b",))
    assert aws.everything() == before


def test_a_deployment_of_an_older_release_is_recognized(aws: MockedAws, clients: Clients) -> None:
    client("ecr").create_repository(repositoryName="gnn")
    aws.push(f"{NAMES.repository}:1")
    client("logs").create_log_group(logGroupName=NAMES.log_group)
    role = client("iam").create_role(RoleName=NAMES.role, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    [described] = client("ecr").describe_images(repositoryName="gnn")["imageDetails"]
    image = {"ImageUri": f"{NAMES.repository}@{described['imageDigest']}"}
    client("lambda").create_function(FunctionName="gnn", Role=role, Code=image, PackageType="Image")
    before = aws.everything()
    told = (
        rf"^repository gnn, function gnn, role {NAMES.role}, log group {NAMES.log_group}: there already, but outside "
        r"CloudFormation\. If dorylax 0\.1 deployed it \(tag dorylax=gnn\), remove it with that release's `dorylax aws "
        r"teardown --name gnn` and deploy again; otherwise choose another --name$"
    )
    for act in (lambda: deploy(clients), lambda: check_unmanaged(clients, NAMES)):
        with pytest.raises(InputError, match=told):
            act()
    assert aws.everything() == before


@pytest.mark.parametrize("tags", [[], [{"Key": "dorylax", "Value": "other"}]])
def test_a_stack_of_somebody_else_is_not_touched(aws: MockedAws, clients: Clients, tags: list) -> None:
    template = '{"Resources": {"Log": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "theirs"}}}}'
    client("cloudformation").create_stack(StackName=NAMES.function_stack, TemplateBody=template, Tags=tags)
    for act in (deploy, teardown):
        with pytest.raises(
            InputError, match=r"^the stack gnn-Function must have the tag dorylax=gnn, .* another --name$"
        ):
            act(clients)
    assert aws.everything()["log groups"] == ["theirs"]


def test_stages_in_s3_go_and_nothing_else_does(aws: MockedAws, clients: Clients) -> None:
    s3, location = clients("s3"), Location.of("s3://mine/runs/stages/")
    assert artefact_keys(location, clients) == []  # nor is there such a bucket
    s3.create_bucket(Bucket="mine", CreateBucketConfiguration={"LocationConstraint": REGION})
    stages = [f"runs/stages/{number:064x}" for number in range(1100)]
    others = [f"{0:064x}", "runs/stages/README", f"runs/stages/old/{0:064x}", f"runs/stages2/{0:064x}"]
    for key in (*stages, *others):
        s3.put_object(Bucket="mine", Key=key, Body=b"")
    assert len(artefact_keys(location, clients)) == 1100
    delete_artefacts(location, clients)
    assert sorted(entry["Key"] for entry in s3.list_objects_v2(Bucket="mine")["Contents"]) == sorted(others)


def test_what_is_paid_for_is_asked_once_and_what_is_not_again(clients: Clients) -> None:
    assert clients("invoke").meta.config.retries["total_max_attempts"] == 1
    assert clients("invoke").meta.config.read_timeout > 900
    assert clients("lambda").meta.config.retries["total_max_attempts"] == 5


def refusal(code: str, message: str, operation: str) -> Exception:
    """An error of boto3."""
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


def test_errors_in_plain_words(aws: MockedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^AWS needs a region: set --region or AWS_REGION, or one in the profile"):
        Clients(None)
    monkeypatch.setenv("AWS_REGION", REGION)
    found = Clients(None)
    assert found.region == REGION
    with (
        pytest.raises(RunError, match=r"^AWS refuses GetRole: AccessDenied: no: docs/aws.md has the policies"),
        in_plain_words(),
    ):
        raise refusal("AccessDenied", "no", "GetRole")
    signed = "the canonical string should be 'x-amz-security-token:SECRET'"
    for code in ("ExpiredToken", "InvalidSignatureException"):
        told = rf"^AWS does not accept the credentials \({code}\): get valid credentials"
        with pytest.raises(InputError, match=told) as caught, in_plain_words():
            raise refusal(code, signed, "GetFunction")
        assert "SECRET" not in str(caught.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(InputError, match=r"^AWS needs credentials \(NoCredentialsError\): get valid"), in_plain_words():
        Clients(None).account()
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InputError, match=r'^boto3 is not installed: pip install "dorylax\[aws\]"$'):
        Clients(REGION)
    found.close()
