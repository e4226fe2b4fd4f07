"""Nobody can make more of their policy than it says, and everybody can do with it what they have to."""

from __future__ import annotations

import pytest
from support.escalations import ADMINISTRATOR, ways
from support.iam import Request, allowed
from support.mocked_aws import REGION, MockedAws

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.clients import Clients
from dorylax.serverless.deploy.deployment import deploy
from dorylax.serverless.deploy.function import delete_artefacts, log_events
from dorylax.serverless.deploy.image.context import Context
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.stacks import Stack
from dorylax.store.base import Location

NAMES = Names("gnn", "123456789012", REGION)
STAGES = Location.of("s3://mine/stages")
NETWORK = {"subnets": ("subnet-0a", "subnet-0b"), "security_groups": ("sg-0c",)}
OWN_CODE = {"lambda:SourceFunctionArn": (NAMES.function_arn,)}
TAGGED = {"aws:RequestTag/dorylax": ("gnn",), "aws:TagKeys": ("dorylax", "aws:cloudformation:stack-name")}
BOUNDED = {"iam:PermissionsBoundary": (NAMES.boundary_arn,)}
BY_LAMBDA = {"iam:PassedToService": ("lambda.amazonaws.com",)}

# What CloudFormation does with the deployer's rights, of the permissions in its schemas of these resources: for the
# template's properties, on creation, update and deletion. Then, with a VPC, what Lambda does with them.
BY_CLOUDFORMATION = {
    NAMES.repository_arn: (
        *("ecr:CreateRepository", "ecr:DeleteRepository", "ecr:DescribeRepositories", "ecr:GetLifecyclePolicy"),
        *("ecr:GetRepositoryPolicy", "ecr:ListTagsForResource", "ecr:PutImageScanningConfiguration"),
        *("ecr:PutImageTagMutability", "ecr:PutLifecyclePolicy", "ecr:SetRepositoryPolicy", "ecr:TagResource"),
    ),
    NAMES.role_arn: (
        *("iam:CreateRole", "iam:DeleteRole", "iam:DeleteRolePolicy", "iam:DetachRolePolicy", "iam:GetRole"),
        *("iam:GetRolePolicy", "iam:ListAttachedRolePolicies", "iam:ListRolePolicies", "iam:PassRole"),
        *("iam:PutRolePermissionsBoundary", "iam:PutRolePolicy", "iam:TagRole"),
    ),
    f"{NAMES.log_group_arn}:*": (
        *("logs:CreateLogGroup", "logs:DeleteLogGroup", "logs:DescribeIndexPolicies", "logs:GetDataProtectionPolicy"),
        *("logs:ListTagsForResource", "logs:PutRetentionPolicy", "logs:TagResource"),
    ),
    NAMES.function_arn: (
        *("lambda:CreateFunction", "lambda:DeleteFunction", "lambda:DeleteFunctionConcurrency", "lambda:GetFunction"),
        *("lambda:GetFunctionCodeSigningConfig", "lambda:GetFunctionRecursionConfig", "lambda:TagResource"),
        *("lambda:GetRuntimeManagementConfig", "lambda:ListTags", "lambda:PutFunctionConcurrency"),
        *("lambda:UpdateFunctionCode", "lambda:UpdateFunctionConfiguration"),
    ),
    "*": ("logs:DescribeLogGroups",),
}
IN_A_VPC = ("ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "ec2:DescribeVpcs")

# What else is done by other means than boto3; each with who does it.
BY_OTHERS = {
    "ecr:BatchCheckLayerAvailability",  # by container engines that push, as are the next four
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:InitiateLayerUpload",
    "ecr:UploadLayerPart",
    "ecr:GetDownloadUrlForLayer",  # by Lambda, for who makes the function
    "ecr:DescribeImageScanFindings",  # by who reads them, with the AWS CLI, as is the next
    "ecr:StartImageScan",
    "lambda:GetFunctionConcurrency",  # or GetFunction leaves the concurrency out
    "cloudformation:DescribeStackEvents",  # after a failure
    "cloudformation:TagResource",
}


def by_cloudformation(network: dict) -> list[Request]:
    """What CloudFormation asks of AWS for whoever deploys."""
    attached = (
        {"lambda:SubnetIds": network["subnets"], "lambda:SecurityGroupIds": network["security_groups"]}
        if network
        else {}
    )
    context = TAGGED | BOUNDED | BY_LAMBDA | attached
    found = [Request(action, target, context) for target, actions in BY_CLOUDFORMATION.items() for action in actions]
    return found + [Request(action, "*") for action in (IN_A_VPC if network else ())]


def live(clients: Clients, aws: MockedAws, network: dict[str, tuple[str, ...]]) -> None:
    """Makes a deployment, changes it, and takes it away."""
    with aws.unrecorded():
        aws.make_boundary(NAMES.name, vpc=bool(network))
        clients("s3").create_bucket(Bucket=STAGES.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        clients("s3").put_object(Bucket=STAGES.bucket, Key=STAGES.key(f"{0:064x}"), Body=b"")
    for tag, settings in (("1", {"reserved_concurrency": 7}), ("2", {"memory_mb": 3008, **network}), ("2", {})):
        deployment = Deployment(name=NAMES.name, region=REGION, **settings)
        context = Context("x86_64", {"Dockerfile": tag.encode()}, "registry.example/base:1")
        for dry_run in (True, False):
            deploy(deployment, context, clients, NAMES, show=lambda _: None, tell=lambda _: None, dry_run=dry_run)
    clients("invoke").invoke(FunctionName=NAMES.name)
    log_events(NAMES, clients, 0)
    for name in (NAMES.function_stack, NAMES.repository_stack):
        stack = Stack(NAMES, name, clients)
        stack.deletion()
        stack.delete()
    delete_artefacts(STAGES, clients)


def deployer(network: dict) -> dict:
    return policies.deployer_policy(NAMES, Deployment(artefacts=str(STAGES), **network))


@pytest.mark.parametrize("network", [{}, NETWORK], ids=["no VPC", "VPC"])
def test_every_known_way_is_closed_to_who_deploys_and_who_trains(network: dict) -> None:
    tried = list(ways(NAMES, STAGES.bucket))
    assert len(tried) > 300
    for policy in (deployer(network), policies.trainer_policy(NAMES, STAGES)):
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
    aws: MockedAws, engine: None, with_network: bool
) -> None:
    clients = Clients(REGION)
    network = aws.make_network() if with_network else {}
    live(clients, aws, network)
    clients.close()
    policy, asked = deployer(network), [*aws.requests, *by_cloudformation(network)]
    assert [request for request in asked if not allowed(request, policy)] == []
    granted = {action for one in policy["Statement"] if one["Effect"] == "Allow" for action in one["Action"]}
    assert granted - {request.action for request in asked} <= BY_OTHERS


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
    policy = policies.trainer_policy(NAMES, STAGES)
    stage = f"arn:aws:s3:::mine/stages/{0:064x}"
    assert allowed(Request("s3:PutObject", stage), policy)
    assert allowed(Request("s3:GetObject", stage), policy)
    assert not any("Delete" in action for one in policy["Statement"] for action in one["Action"])
    assert allowed(Request("s3:DeleteObject", stage), deployer({}))
