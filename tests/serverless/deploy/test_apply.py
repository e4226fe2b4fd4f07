"""Plans carried out on moto: once, twice, half, against other people's resources, and down to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.mocked_aws import REGION, MockedAws, mocked_aws

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.apply import Applier
from dorylax.serverless.deploy.clients import Clients, in_plain_words
from dorylax.serverless.deploy.found import Found
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.plan import Action, Wanted, plan_deploy, plan_teardown
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.state import read
from dorylax.store.base import Location

NAMES = Names("gnn", "123456789012", REGION)


@pytest.fixture(scope="module")
def made() -> Iterator[Clients]:
    """Clients, made once: it takes a second each."""
    with mocked_aws():
        found = Clients(REGION)
        for service in ("lambda", "invoke", "iam", "ecr", "logs", "ec2", "s3", "sts"):
            found(service)
    yield found
    found.close()


@pytest.fixture
def clients(made: Clients, aws: MockedAws) -> Clients:
    """With the permissions boundary in place, which belongs to no deployment."""
    aws.make_boundary("gnn")
    return made


def wanted(tag: str = "1", **settings: Any) -> Wanted:
    return Wanted(Deployment(name="gnn", region=REGION, **settings), NAMES, NAMES.image(tag), tag)


def refusal(code: str, message: str, operation: str) -> Exception:
    """An error of boto3."""
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


def deploy(clients: Clients, aws: MockedAws, what: Wanted, **options: Any) -> list[tuple[str, str]]:
    """Deploys; gives the steps that were no `keep`."""
    actions = plan_deploy(what, read(NAMES, clients, boundary=True))
    with in_plain_words():
        Applier(clients, NAMES, what, aws.push, **options).apply(actions)
    return [(action.verb, action.kind) for action in actions if action.verb != "keep"]


def teardown(clients: Clients, **options: Any) -> list[str]:
    actions = plan_teardown(NAMES, read(NAMES, clients))
    Applier(clients, NAMES, **options).apply(actions)
    return [action.kind for action in actions]


@pytest.fixture
def vpc(aws: MockedAws, clients: Clients) -> dict[str, tuple[str, ...]]:
    return aws.make_network()


def test_deployed_twice_the_second_time_changes_nothing(aws: MockedAws, clients: Clients) -> None:
    what = wanted(reserved_concurrency=7)
    steps = deploy(clients, aws, what)
    assert {verb for verb, _ in steps} == {"create"}
    found = read(NAMES, clients)
    function = found.function
    assert (function.memory_mb, function.timeout_seconds) == (1769, 900)
    # By digest: no later push of that tag can change what runs.
    assert function.image == NAMES.pinned_image(found.repository.digest_of("1") or "")
    assert (found.repository.scans, found.repository.immutable) == (True, True)
    assert (function.architecture, function.role_arn, function.reserved_concurrency) == ("x86_64", NAMES.role_arn, 7)
    assert (function.state, function.update) == ("Active", "Successful")
    assert function.digest == function.image.partition("@")[2]
    assert found.role.boundary == NAMES.boundary_arn
    assert found.role.policies == policies.role_policies(NAMES, vpc=False)
    assert found.log_group.retention_days == 7
    for resource in (function, found.role, found.log_group, found.repository):
        assert dict(resource.tags) == {"dorylax": "gnn"}
    before = list(aws.changes)
    assert deploy(clients, aws, what) == []
    assert aws.changes == before


def test_a_change_updates_what_it_concerns(aws: MockedAws, clients: Clients) -> None:
    deploy(clients, aws, wanted(reserved_concurrency=7))
    assert deploy(clients, aws, wanted(memory_mb=3008)) == [("update", "function"), ("delete", "concurrency")]
    function = read(NAMES, clients).function
    assert (function.memory_mb, function.reserved_concurrency) == (3008, None)
    steps = deploy(clients, aws, wanted("2", memory_mb=3008, log_retention_days=30, timeout_seconds=60))
    assert steps == [("create", "image"), ("update", "log group"), ("update", "function"), ("delete", "old images")]
    found = read(NAMES, clients)
    [digest] = found.repository.images
    assert (found.function.image, found.function.timeout_seconds) == (NAMES.pinned_image(digest), 60)
    assert list(found.repository.images.values()) == [("2",)]
    assert found.log_group.retention_days == 30
    assert deploy(clients, aws, wanted("2", memory_mb=3008, log_retention_days=30, timeout_seconds=60)) == []


def test_into_a_vpc_and_out_again(aws: MockedAws, clients: Clients, vpc: dict) -> None:
    deploy(clients, aws, wanted())
    assert deploy(clients, aws, wanted(**vpc)) == [("update", "role"), ("update", "function")]
    found = read(NAMES, clients)
    assert found.function.subnets == tuple(sorted(vpc["subnets"]))
    assert set(found.role.policies) == {"logs", "network"}
    assert deploy(clients, aws, wanted(**vpc)) == []
    assert deploy(clients, aws, wanted()) == [("update", "function")]
    assert deploy(clients, aws, wanted()) == [("update", "role")]
    role = read(NAMES, clients).role
    assert set(role.policies) == {"logs"}
    assert deploy(clients, aws, wanted()) == []


def nothing_of_it(aws: MockedAws) -> bool:
    """Whether only the boundary is left, which belongs to an administrator."""
    there = {kind: names for kind, names in aws.everything().items() if names}
    return there == {"policies": [NAMES.boundary]}


def broken_off(aws: MockedAws, at: int, act: Callable[[], Any]) -> bool:
    """Whether an act fails at its change number `at`; it does not where it has fewer."""
    aws.calls.clear()
    aws.fail_at = at
    try:
        with in_plain_words():
            act()
    except RunError:
        return True
    finally:
        aws.fail_at = None
    return False


def test_a_deployment_that_is_broken_off_at_any_call_goes_on_to_the_same_end(aws: MockedAws, clients: Clients) -> None:
    what, at = wanted(reserved_concurrency=7), 0
    while broken_off(aws, at, lambda: deploy(clients, aws, what)):
        deploy(clients, aws, what)
        assert deploy(clients, aws, what) == []
        teardown(clients)
        assert nothing_of_it(aws)
        at += 1
    assert at == 9  # repository, its policy, image, log group, retention, role, its policy, function, concurrency


def test_a_teardown_that_is_broken_off_at_any_call_goes_on_to_nothing(aws: MockedAws, clients: Clients) -> None:
    what, at = wanted(), 0
    deploy(clients, aws, what)
    while broken_off(aws, at, lambda: teardown(clients)):
        teardown(clients)
        assert nothing_of_it(aws)
        deploy(clients, aws, what)
        at += 1
    assert at == 5  # function, the role's policy, role, log group, repository
    assert nothing_of_it(aws)


def test_a_deployment_that_is_broken_off_at_any_call_is_taken_away_whole(aws: MockedAws, clients: Clients) -> None:
    what, at = wanted(reserved_concurrency=7), 0
    while broken_off(aws, at, lambda: deploy(clients, aws, what)):
        assert bool(teardown(clients)) == (at > 0)
        assert nothing_of_it(aws)
        at += 1
    assert at == 9


def test_teardown_leaves_nothing_and_may_be_repeated(aws: MockedAws, clients: Clients, vpc: dict) -> None:
    deploy(clients, aws, wanted(**vpc))
    policy = clients("iam").create_policy(
        PolicyName="mine", PolicyDocument=json.dumps(policies.trainer_policy(NAMES, vpc=True))
    )
    clients("iam").attach_role_policy(RoleName=NAMES.role, PolicyArn=policy["Policy"]["Arn"])
    there = aws.everything()
    assert (there["functions"], there["roles"]) == (["gnn"], [f"gnn-{REGION}"])
    assert teardown(clients) == ["function", "network interfaces", "role", "log group", "repository"]
    # The policy was attached by somebody else: it stays, detached.
    assert {kind: names for kind, names in aws.everything().items() if names} == {"policies": [NAMES.boundary, "mine"]}
    assert teardown(clients) == []


def test_teardown_waits_for_network_interfaces_with_the_role_in_place(
    aws: MockedAws, clients: Clients, vpc: dict
) -> None:
    deploy(clients, aws, wanted(**vpc))
    ec2 = clients("ec2")
    made = ec2.create_network_interface(
        SubnetId=vpc["subnets"][0], Description="AWS Lambda VPC ENI-gnn-01234567-89ab-cdef-0123-456789abcdef"
    )
    ec2.create_network_interface(
        SubnetId=vpc["subnets"][0], Description="AWS Lambda VPC ENI-gnn-other-01234567-89ab-cdef-0123-456789abcdef"
    )
    assert read(NAMES, clients).network_interfaces == 1
    time = [0.0]

    def sleep(seconds: float) -> None:
        time[0] += 20 * seconds
        clients("iam").get_role(RoleName=NAMES.role)

    with pytest.raises(RunError, match="AWS still has 1 network interfaces of the function"):
        teardown(clients, now=lambda: time[0], sleep=sleep)
    assert time[0] >= 20 * 60
    ec2.delete_network_interface(NetworkInterfaceId=made["NetworkInterface"]["NetworkInterfaceId"])
    assert teardown(clients) == ["role", "log group", "repository"]


@pytest.mark.parametrize(
    "new",
    [
        ("lambda", "create_function", "InvalidParameterValueException", "The role cannot be assumed by Lambda."),
        ("iam", "put_role_policy", "AccessDenied", "User: me is not authorized to perform: iam:PutRolePolicy"),
    ],
    ids=["a role that Lambda does not know yet", "a boundary that IAM does not know yet"],
)
def test_what_is_new_may_be_refused_at_first(
    aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch, new: tuple[str, str, str, str]
) -> None:
    service, operation, code, message = new
    call, waited = getattr(clients(service), operation), []

    def unknown_at_first(**arguments: Any) -> Any:
        if len(waited) < 3:
            raise refusal(code, message, operation)
        return call(**arguments)

    monkeypatch.setattr(clients(service), operation, unknown_at_first)
    deploy(clients, aws, wanted(), sleep=waited.append)
    assert waited == [2.0] * 3
    assert deploy(clients, aws, wanted()) == []


def test_a_function_that_is_being_changed_is_asked_again_later(
    aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ("create_function", "put_function_concurrency", "update_function_code", "delete_function_concurrency")
    waited: list[float] = []
    asked: dict[str, int] = {}
    for name in (*changes, "update_function_configuration", "delete_function"):
        call = getattr(clients("lambda"), name)

        def busy_at_first(name: str = name, call: Any = call, **arguments: Any) -> Any:
            asked[name] = asked.get(name, 0) + 1
            if asked[name] % 2:
                message = "The operation cannot be performed at this time. An update is in progress for resource: gnn"
                raise refusal("ResourceConflictException", message, name)
            return call(**arguments)

        monkeypatch.setattr(clients("lambda"), name, busy_at_first)
    deploy(clients, aws, wanted(reserved_concurrency=7), sleep=waited.append)
    deploy(clients, aws, wanted("2", memory_mb=3008), sleep=waited.append)
    assert deploy(clients, aws, wanted("2", memory_mb=3008)) == []
    teardown(clients, sleep=waited.append)
    assert nothing_of_it(aws)
    assert asked == dict.fromkeys(asked, 2)
    assert len(asked) == len(waited) == 6


def test_a_function_that_is_being_made_is_waited_for(
    aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a deployment that was broken off while Lambda made the function."""
    from moto.awslambda.models import LambdaFunction

    deploy(clients, aws, wanted())
    configuration, looks, end = LambdaFunction.get_configuration, [0], {}

    def pending(function: Any, on_create: bool = False) -> dict[str, Any]:
        looks[0] += 1
        return configuration(function, on_create) | ({"State": "Pending"} if looks[0] < 3 else end)

    monkeypatch.setattr(LambdaFunction, "get_configuration", pending)
    assert deploy(clients, aws, wanted()) == [("wait", "function")]
    looks[0], end = 0, {"State": "Failed", "StateReason": "no image"}
    with pytest.raises(RunError, match=r"^the function did not become ready: no image; run the same command"):
        deploy(clients, aws, wanted())


def test_what_others_may_do_with_the_repository_stays(aws: MockedAws, clients: Clients) -> None:
    deploy(clients, aws, wanted())
    theirs = {"Sid": "LambdaECRImageRetrieval", "Effect": "Allow", "Principal": "*", "Action": ["ecr:BatchGetImage"]}
    document = {"Version": "2012-10-17", "Statement": [theirs, {**theirs, "Sid": "LambdaPulls"}]}
    clients("ecr").set_repository_policy(repositoryName="gnn", policyText=json.dumps(document))
    assert deploy(clients, aws, wanted()) == [("update", "repository")]
    repository = read(NAMES, clients).repository
    assert repository.policy["Statement"] == [theirs, *policies.repository_policy(NAMES)["Statement"]]
    assert deploy(clients, aws, wanted()) == []


def test_stages_in_s3_go_with_the_rest_and_nothing_else_does(aws: MockedAws, clients: Clients) -> None:
    s3, location = clients("s3"), Location.of("s3://mine/runs/stages/")
    assert read(NAMES, clients, location) == Found()  # nor is there such a bucket
    s3.create_bucket(Bucket="mine", CreateBucketConfiguration={"LocationConstraint": REGION})
    stages = [f"runs/stages/{number:064x}" for number in range(1100)]
    others = [f"{0:064x}", "runs/stages/README", f"runs/stages/old/{0:064x}", f"runs/stages2/{0:064x}"]
    for key in (*stages, *others):
        s3.put_object(Bucket="mine", Key=key, Body=b"")
    found = read(NAMES, clients, location)
    assert found.artefacts == 1100
    assert plan_teardown(NAMES, read(NAMES, clients)) == ()
    actions = plan_teardown(NAMES, found, artefacts="s3://mine/runs/stages/")
    assert [(action.verb, action.kind, action.reason) for action in actions] == [
        ("delete", "artefacts", "1100 stages, of whatever run")
    ]
    Applier(clients, NAMES, artefacts=location).apply(actions)
    assert sorted(entry["Key"] for entry in s3.list_objects_v2(Bucket="mine")["Contents"]) == sorted(others)
    assert read(NAMES, clients, location) == Found()
    allowed = policies.deployer_policy(NAMES, artefacts=location)
    assert [s["Action"] for s in allowed["Statement"] if "s3:" in s["Action"][0]] == [
        ["s3:DeleteObject"],
        ["s3:ListBucket"],
    ]


def test_what_is_paid_for_is_asked_once_and_what_is_not_again(aws: MockedAws, clients: Clients) -> None:
    assert clients("invoke").meta.config.retries["total_max_attempts"] == 1
    assert clients("invoke").meta.config.read_timeout > 900
    assert clients("lambda").meta.config.retries["total_max_attempts"] == 5


def test_a_function_that_does_not_become_ready(
    aws: MockedAws, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.awslambda.models import LambdaFunction

    deploy(clients, aws, wanted())
    with monkeypatch.context() as patch:
        configuration = LambdaFunction.get_configuration

        def failed(function: Any, on_create: bool = False) -> dict[str, Any]:
            end = {"LastUpdateStatus": "Failed", "LastUpdateStatusReason": "no rights"}
            return configuration(function, on_create) | end

        patch.setattr(LambdaFunction, "get_configuration", failed)
        with pytest.raises(RunError, match=r"^the function did not become ready: no rights; run the same command"):
            deploy(clients, aws, wanted(memory_mb=3008))


def test_nothing_is_made_without_the_boundary(aws: MockedAws, made: Clients) -> None:
    with pytest.raises(InputError, match=r"^permissions boundary gnn-eu-west-1-boundary: there is none: an admin"):
        deploy(made, aws, wanted())
    assert aws.changes == []
    aws.make_boundary("gnn", vpc=False)
    assert ("create", "function") in deploy(made, aws, wanted())
    before = list(aws.changes)
    network = {"subnets": ("subnet-0a",), "security_groups": ("sg-0b",)}
    with pytest.raises(InputError, match=r"-boundary: it is not the one that this deployment needs: an administrator"):
        deploy(made, aws, wanted(**network))
    assert aws.changes == before


def test_a_deployment_of_an_older_release_is_mended(aws: MockedAws, clients: Clients) -> None:
    """Without a boundary, with a repository whose tags move, with an image by tag."""
    deploy(clients, aws, wanted())
    with aws.unrecorded():
        clients("iam").delete_role_permissions_boundary(RoleName=NAMES.role)
        clients("ecr").put_image_tag_mutability(repositoryName="gnn", imageTagMutability="MUTABLE")
        clients("lambda").update_function_code(FunctionName="gnn", ImageUri=NAMES.image("1"))
    start = len(aws.calls)
    assert deploy(clients, aws, wanted()) == [("update", "repository"), ("update", "role"), ("update", "function")]
    calls = aws.calls[start:]
    # Or the deployer's policy forbids the second.
    assert calls.index("iam:PutRolePermissionsBoundary") < calls.index("iam:PutRolePolicy")
    assert deploy(clients, aws, wanted()) == []


def test_errors_in_plain_words(aws: MockedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^no AWS region is set: give --region, or set AWS_REGION$"):
        Clients(None)
    monkeypatch.setenv("AWS_REGION", REGION)
    found = Clients(None)
    assert found.region == REGION
    for code, text in (("AccessDenied", "docs/aws.md has the policies"), ("ExpiredToken", "get new ones")):
        with pytest.raises(RunError, match=text) as caught, in_plain_words():
            raise refusal(code, "no", "GetRole")
        assert str(caught.value).startswith(f"AWS refuses GetRole: {code}: no: ")
    signed = "the canonical string should be 'x-amz-security-token:SECRET'"
    told = r"the credentials or this machine's clock are wrong$"
    with pytest.raises(RunError, match=told) as caught, in_plain_words():
        raise refusal("InvalidSignatureException", signed, "GetFunction")
    assert "SECRET" not in str(caught.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(InputError, match=r"^no AWS credentials can be used"), in_plain_words():
        Clients(None).account()
    monkeypatch.setitem(__import__("sys").modules, "boto3.session", None)
    with pytest.raises(InputError, match=r'^boto3 is not installed: pip install "dorylax\[aws\]"$'):
        Clients(REGION)
    found.close()


def test_steps_are_told_before_they_are_taken(aws: MockedAws, clients: Clients) -> None:
    told: list[Action] = []
    what = wanted()
    actions = plan_deploy(what, read(NAMES, clients, boundary=True))

    def report(action: Action) -> None:
        assert len(told) > 1 or not aws.changes
        told.append(action)

    Applier(clients, NAMES, what, aws.push).apply(actions, report)
    assert tuple(told) == actions
