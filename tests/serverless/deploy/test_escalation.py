"""Nobody can make more of their policy than it says, and everybody can do with it what they have to."""

from __future__ import annotations

import json

import pytest
from support.escalations import ADMINISTRATOR, ways
from support.iam import Request, allowed
from support.mocked_aws import REGION, MockedAws

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.apply import Applier
from dorylax.serverless.deploy.clients import Clients
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.plan import Wanted, plan_deploy, plan_teardown
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.state import read
from dorylax.store.base import Location

NAMES = Names("gnn", "123456789012", REGION)
EVERYTHING = json.dumps(ADMINISTRATOR)
ANYBODY = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]}
)
STAGES = Location.of("s3://mine/stages")
NETWORK = {"subnets": ("subnet-0a", "subnet-0b"), "security_groups": ("sg-0c",)}
OWN_CODE = {"lambda:SourceFunctionArn": (NAMES.function_arn,)}

# What deployments do by other means than boto3, or only where something is missing; each with why it is allowed.
BY_OTHERS = {
    "ecr:BatchCheckLayerAvailability",  # by container engines that push, as are the next four
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:InitiateLayerUpload",
    "ecr:UploadLayerPart",
    "ecr:GetDownloadUrlForLayer",  # by Lambda, for who makes the function
    "ecr:DescribeImageScanFindings",  # by who reads them, with the AWS CLI, as is the next
    "ecr:StartImageScan",
    "lambda:GetFunctionConcurrency",  # or GetFunction leaves the concurrency out, and tags without the next
    "lambda:ListTags",
    "logs:FilterLogEvents",  # by `logs`
    "ec2:DescribeSecurityGroups",  # by Lambda, for who attaches the function, as are the next two
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
}


def live(clients: Clients, aws: MockedAws, network: dict[str, tuple[str, ...]]) -> None:
    """Makes a deployment, changes it, has others change it (off the record), mends it, and takes it away."""
    with aws.unrecorded():
        aws.make_boundary(NAMES.name, vpc=bool(network))
        clients("s3").create_bucket(Bucket=STAGES.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        clients("s3").put_object(Bucket=STAGES.bucket, Key=STAGES.key(f"{0:064x}"), Body=b"")

    def deploy(tag: str, **settings: object) -> None:
        wanted = Wanted(Deployment(name=NAMES.name, region=REGION, **settings), NAMES, NAMES.image(tag), tag)

        def push(address: str) -> None:
            clients("ecr").get_authorization_token()
            aws.push(address)

        actions = plan_deploy(wanted, read(NAMES, clients, boundary=True))
        Applier(clients, NAMES, wanted, push, sleep=lambda _: None).apply(actions)

    deploy("1", reserved_concurrency=7)
    deploy("2", memory_mb=3008, log_retention_days=30, **network)
    with aws.unrecorded():
        clients("iam").delete_role_permissions_boundary(RoleName=NAMES.role)
        clients("iam").put_role_policy(RoleName=NAMES.role, PolicyName="more", PolicyDocument=EVERYTHING)
        clients("ecr").put_image_tag_mutability(repositoryName=NAMES.name, imageTagMutability="MUTABLE")
    deploy("2", **network)
    deploy("2")  # out of the network
    deploy("2")
    with aws.unrecorded():
        policy = clients("iam").create_policy(PolicyName="theirs", PolicyDocument=EVERYTHING)
        clients("iam").attach_role_policy(RoleName=NAMES.role, PolicyArn=policy["Policy"]["Arn"])
        clients("iam").update_assume_role_policy(RoleName=NAMES.role, PolicyDocument=ANYBODY)
    deploy("2")
    clients("invoke").invoke(FunctionName=NAMES.name)
    found = read(NAMES, clients, STAGES)
    Applier(clients, NAMES, artefacts=STAGES).apply(plan_teardown(NAMES, found, artefacts="s3://mine/stages"))


def deployer(network: dict) -> dict:
    return policies.deployer_policy(NAMES, artefacts=STAGES, **network)


@pytest.mark.parametrize("network", [{}, NETWORK], ids=["no VPC", "VPC"])
def test_every_known_way_is_closed_to_who_deploys_and_who_trains(network: dict) -> None:
    tried = list(ways(NAMES, STAGES.bucket))
    assert len(tried) > 300
    for policy in (deployer(network), policies.trainer_policy(NAMES, vpc=bool(network), artefacts=STAGES)):
        assert [way.name for way in tried if all(allowed(request, policy) for request in way.requests)] == []


@pytest.mark.parametrize("vpc", [False, True])
def test_whatever_the_role_is_given_it_gets_no_more_than_its_own_rights(vpc: bool) -> None:
    boundary = policies.boundary_policy(NAMES, vpc=vpc)
    own = f"{NAMES.log_group_arn}:log-stream:1"
    for way in ways(NAMES, STAGES.bucket):
        for asked in way.requests:
            code = Request(asked.action, asked.resource, {**asked.context, **OWN_CODE})
            assert not allowed(code, ADMINISTRATOR, boundary), way.name
    # Denied or not, nothing is left to be wanted.
    assert allowed(Request("logs:PutLogEvents", own), ADMINISTRATOR, boundary)
    assert not allowed(Request("logs:PutLogEvents", own.replace("gnn", "other")), ADMINISTRATOR, boundary)
    attach = Request("ec2:CreateNetworkInterface", "*")
    assert allowed(attach, ADMINISTRATOR, boundary) == vpc


@pytest.mark.parametrize("with_network", [False, True], ids=["no VPC", "VPC"])
def test_who_deploys_may_make_every_call_of_a_deployment_s_life_and_has_no_right_more(
    aws: MockedAws, with_network: bool
) -> None:
    clients = Clients(REGION)
    network = aws.make_network() if with_network else {}
    live(clients, aws, network)
    clients.close()
    policy = deployer(network)
    assert [request for request in aws.requests if not allowed(request, policy)] == []
    granted = {action for one in policy["Statement"] if one["Effect"] == "Allow" for action in one["Action"]}
    assert granted - aws.actions <= BY_OTHERS
    assert aws.actions <= granted


def test_who_deploys_may_not_make_a_role_without_the_boundary() -> None:
    for action in ("CreateRole", "PutRolePolicy", "PutRolePermissionsBoundary"):
        for boundary, fine in ((NAMES.boundary_arn, True), ("arn:aws:iam::aws:policy/AdministratorAccess", False)):
            context = {"iam:PermissionsBoundary": (boundary,)}
            assert allowed(Request(f"iam:{action}", NAMES.role_arn, context), deployer({})) == fine
        assert not allowed(Request(f"iam:{action}", NAMES.role_arn), deployer({}))


def test_who_deploys_may_not_touch_the_boundary_whatever_else_they_may() -> None:
    more = {"Statement": [*deployer({})["Statement"], *ADMINISTRATOR["Statement"]]}
    for action in ("CreatePolicyVersion", "DeletePolicy", "DeletePolicyVersion", "SetDefaultPolicyVersion"):
        assert not allowed(Request(f"iam:{action}", NAMES.boundary_arn), more)
    for action in ("iam:DeleteRolePermissionsBoundary", "iam:UpdateAssumeRolePolicy", "sts:AssumeRole"):
        assert not allowed(Request(action, NAMES.role_arn), more)
    assert allowed(Request("iam:GetPolicy", NAMES.boundary_arn), more)


@pytest.mark.parametrize(
    ("network", "asked", "fine"),
    [
        (NETWORK, NETWORK, True),
        (NETWORK, {}, True),
        (NETWORK, {"subnets": ("subnet-0a",), "security_groups": ("sg-ff",)}, False),
        (NETWORK, {"subnets": ("subnet-ff",), "security_groups": ("sg-0c",)}, False),
        ({}, {}, True),
        ({}, NETWORK, False),
    ],
)
def test_the_function_goes_into_no_other_network(network: dict, asked: dict, fine: bool) -> None:
    context = {}
    if asked:
        context = {
            "lambda:SubnetIds": asked["subnets"],
            "lambda:SecurityGroupIds": asked["security_groups"],
            "lambda:VpcIds": ("vpc-0",),
        }
    for action in ("CreateFunction", "UpdateFunctionConfiguration"):
        assert allowed(Request(f"lambda:{action}", NAMES.function_arn, context), deployer(network)) == fine


def test_who_trains_deletes_nothing() -> None:
    policy = policies.trainer_policy(NAMES, vpc=True, artefacts=STAGES)
    stage = f"arn:aws:s3:::mine/stages/{0:064x}"
    assert allowed(Request("s3:PutObject", stage), policy)
    assert allowed(Request("s3:GetObject", stage), policy)
    assert not any("Delete" in action for one in policy["Statement"] for action in one["Action"])
    assert allowed(Request("s3:DeleteObject", stage), deployer({}))
