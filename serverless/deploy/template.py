"""CloudFormation templates of a deployment. Pure."""

from __future__ import annotations

import json
from typing import Any

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.names import Names
from dorylax.serverless.deploy.settings import Deployment

Template = dict[str, Any]

KEPT_IMAGES = 5
"""Number of images that stay in the repository. The function's image is the newest or, after a step back, a recent one."""


def repository_template(names: Names) -> Template:
    """Build the template of the image repository: scanned, with immutable tags, deleted together with its images."""
    last = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": KEPT_IMAGES}
    rules = {"rules": [{"rulePriority": 1, "selection": last, "action": {"type": "expire"}}]}
    repository = {
        "RepositoryName": names.name,
        "ImageScanningConfiguration": {"ScanOnPush": True},
        "ImageTagMutability": "IMMUTABLE",
        "LifecyclePolicy": {"LifecyclePolicyText": json.dumps(rules)},
        "RepositoryPolicyText": policies.repository_policy(names),
        "EmptyOnDelete": True,
    }
    return _template(Repository={"Type": "AWS::ECR::Repository", "Properties": repository})


def function_template(names: Names, deployment: Deployment, image: str, *, vpc: bool) -> Template:
    """Build the template of the function, its role with one policy, and its log group.

    Args:
        names: Names of the deployment's resources.
        deployment: Settings of the function.
        image: Address of the function's image, by digest, so that no later push changes the function.
        vpc: Whether the role may attach the function to a VPC. Lambda needs this right to detach the function, too, so it
            outlasts the subnets by one deployment.
    """
    role = {
        "RoleName": names.role,
        "AssumeRolePolicyDocument": policies.trust_policy(),
        "PermissionsBoundary": names.boundary_arn,
    }
    # A separate resource, because the deployer may add policies only to a role with the boundary: CloudFormation waits until
    # a new role has propagated.
    policy = {
        "PolicyName": "function",
        "PolicyDocument": policies.boundary_policy(names, vpc=vpc),
        "Roles": [{"Ref": "Role"}],
    }
    function = {
        "FunctionName": names.name,
        "PackageType": "Image",
        "Code": {"ImageUri": image},
        "Architectures": [deployment.architecture],
        "MemorySize": deployment.memory_mb,
        "Timeout": deployment.timeout_seconds,
        "Role": {"Fn::GetAtt": ["Role", "Arn"]},
        # Empty lists detach the function from its VPC.
        "VpcConfig": {"SubnetIds": list(deployment.subnets), "SecurityGroupIds": list(deployment.security_groups)},
    }
    if deployment.reserved_concurrency is not None:
        function["ReservedConcurrentExecutions"] = deployment.reserved_concurrency
    log_group = {"LogGroupName": names.log_group, "RetentionInDays": deployment.log_retention_days}
    return _template(
        LogGroup={"Type": "AWS::Logs::LogGroup", "Properties": log_group},
        Role={"Type": "AWS::IAM::Role", "Properties": role},
        Policy={"Type": "AWS::IAM::Policy", "Properties": policy},
        # Lambda needs the rights to attach the function to a VPC and to detach it. The role may not create a log group.
        Function={"Type": "AWS::Lambda::Function", "Properties": function, "DependsOn": ["LogGroup", "Policy"]},
    )


def _template(**resources: Template) -> Template:
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources}
