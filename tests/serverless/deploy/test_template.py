"""The templates: names, rights, and properties of each resource, and what cfn-lint finds."""

from __future__ import annotations

import json

import pytest

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.settings import Deployment
from dorylax.serverless.deploy.template import Template, function_template, repository_template

NAMES = Names("gnn", "123456789012", "eu-west-1")
IMAGE = f"{NAMES.repository}@sha256:{7:064x}"
VPC = {"subnets": ("subnet-0a1b2c3d", "subnet-0a1b2c3e"), "security_groups": ("sg-0a1b2c3d",)}


def made(*, vpc: bool = False, **settings: object) -> dict[str, dict]:
    """The properties of the function stack's resources."""
    deployment = Deployment(name="gnn", region="eu-west-1", **settings)
    resources = function_template(NAMES, deployment, IMAGE, vpc=vpc)["Resources"]
    return {name: resource["Properties"] for name, resource in resources.items()}


def test_the_repository_scans_keeps_its_tags_and_forgets_old_images() -> None:
    [repository] = [resource["Properties"] for resource in repository_template(NAMES)["Resources"].values()]
    assert repository["RepositoryName"] == "gnn"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["RepositoryPolicyText"] == policies.repository_policy(NAMES)
    assert repository["EmptyOnDelete"]
    [rule] = json.loads(repository["LifecyclePolicy"]["LifecyclePolicyText"])["rules"]
    # The function's image is among them, as are those that a rollback or a step back needs.
    assert rule["selection"] == {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 5}
    assert rule["action"] == {"type": "expire"}


@pytest.mark.parametrize("vpc", [False, True])
def test_the_role_has_the_boundary_and_no_rights_beyond_it(vpc: bool) -> None:
    resources = made(vpc=vpc)
    role = resources["Role"]
    assert role["RoleName"] == "gnn-eu-west-1"
    assert role["PermissionsBoundary"] == NAMES.boundary_arn
    assert role["AssumeRolePolicyDocument"] == policies.trust_policy()
    assert role.keys() == {"RoleName", "PermissionsBoundary", "AssumeRolePolicyDocument"}
    assert resources["Policy"]["PolicyDocument"] == policies.boundary_policy(NAMES, vpc=vpc)
    assert resources["Policy"]["Roles"] == [{"Ref": "Role"}]
    assert resources.keys() == {"LogGroup", "Role", "Policy", "Function"}


def test_the_function_has_the_settings_and_its_image_by_digest() -> None:
    settings = {"architecture": "arm64", "memory_mb": 3008, "timeout_seconds": 60, "reserved_concurrency": 7}
    resources = made(**settings, log_retention_days=30)
    assert resources["Function"] == {
        "FunctionName": "gnn",
        "PackageType": "Image",
        "Code": {"ImageUri": IMAGE},
        "Architectures": ["arm64"],
        "MemorySize": 3008,
        "Timeout": 60,
        "Role": {"Fn::GetAtt": ["Role", "Arn"]},
        "VpcConfig": {"SubnetIds": [], "SecurityGroupIds": []},
        "ReservedConcurrentExecutions": 7,
    }
    assert resources["LogGroup"] == {"LogGroupName": "/aws/lambda/gnn", "RetentionInDays": 30}
    assert "ReservedConcurrentExecutions" not in made()["Function"]


def test_the_function_in_a_vpc() -> None:
    network = made(vpc=True, **VPC)["Function"]["VpcConfig"]
    assert network == {"SubnetIds": list(VPC["subnets"]), "SecurityGroupIds": list(VPC["security_groups"])}


def test_the_function_goes_before_its_log_group_and_its_rights() -> None:
    function = function_template(NAMES, Deployment(), IMAGE, vpc=False)["Resources"]["Function"]
    assert function["DependsOn"] == ["LogGroup", "Policy"]
    assert function["Properties"]["Role"] == {"Fn::GetAtt": ["Role", "Arn"]}


@pytest.mark.parametrize(
    "template",
    [
        repository_template(NAMES),
        function_template(NAMES, Deployment(), IMAGE, vpc=False),
        function_template(NAMES, Deployment(reserved_concurrency=7, **VPC), IMAGE, vpc=True),
    ],
    ids=["repository", "function", "function in a VPC"],
)
def test_cfn_lint_finds_nothing(template: Template) -> None:
    lint = pytest.importorskip("cfnlint.api", reason="needs cfn-lint")
    found = lint.lint_all(json.dumps(template))
    assert [str(match) for match in found if match.rule.id[0] == "E"] == []
