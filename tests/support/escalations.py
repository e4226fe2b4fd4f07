"""Known ways to get rights in an AWS account that one was not given.

After Rhino Security Labs' list of methods of IAM privilege escalation, and what has been added to such lists since. A way is
open if every one of its requests is allowed, with the targets and the condition keys that suit the intruder best.
"""

from __future__ import annotations

from collections.abc import Iterator

from dorylax.serverless.deploy.names import Names
from support.iam import Request, Values


class Way:
    """A way: what is done, and the requests, all of which it needs."""

    def __init__(self, name: str, *requests: Request) -> None:
        self.name, self.requests = name, requests


ON_IAM = {
    "policy": ("CreatePolicy", "CreatePolicyVersion", "SetDefaultPolicyVersion", "DeletePolicy", "DeletePolicyVersion"),
    "user": (
        *("AddUserToGroup", "AttachUserPolicy", "CreateAccessKey", "CreateLoginProfile"),
        *("CreateServiceSpecificCredential", "CreateUser", "DeactivateMFADevice"),
        *("DeleteUserPermissionsBoundary", "DeleteUserPolicy", "DetachUserPolicy"),
        *("PutUserPermissionsBoundary", "PutUserPolicy", "ResyncMFADevice"),
        *("UpdateAccessKey", "UpdateLoginProfile"),
    ),
    "group": ("AddUserToGroup", "AttachGroupPolicy", "PutGroupPolicy"),
    "role": (
        *("AttachRolePolicy", "CreateRole", "DeleteRolePermissionsBoundary", "PutRolePermissionsBoundary"),
        *("PutRolePolicy", "UpdateAssumeRolePolicy"),
    ),
    "instance-profile": ("AddRoleToInstanceProfile", "CreateInstanceProfile"),
    "saml-provider": ("CreateSAMLProvider", "UpdateSAMLProvider"),
    "oidc-provider": ("AddClientIDToOpenIDConnectProvider", "CreateOpenIDConnectProvider"),
}

WITH_A_PASSED_ROLE = {
    "ec2": (
        "RunInstances",
        "AssociateIamInstanceProfile",
        "ReplaceIamInstanceProfileAssociation",
        "RequestSpotInstances",
    ),
    "glue": ("CreateDevEndpoint", "CreateJob", "UpdateJob", "CreateSession"),
    "cloudformation": ("CreateStack", "UpdateStack", "CreateStackSet", "CreateChangeSet"),
    "datapipeline": ("CreatePipeline",),
    "codestar": ("CreateProject",),
    "sagemaker": ("CreateNotebookInstance", "CreateProcessingJob", "CreateTrainingJob"),
    "codebuild": ("CreateProject", "UpdateProject"),
    "ecs": ("RegisterTaskDefinition", "RunTask"),
    "batch": ("RegisterJobDefinition",),
    "states": ("CreateStateMachine", "UpdateStateMachine"),
    "events": ("PutTargets",),
    "scheduler": ("CreateSchedule",),
    "ssm": ("StartAutomationExecution",),
    "cognito-identity": ("SetIdentityPoolRoles",),
    "apprunner": ("CreateService",),
    "bedrock-agentcore": ("CreateCodeInterpreter",),
}

WITHOUT_ONE = {
    "codestar": ("CreateProjectFromTemplate", "AssociateTeamMember"),
    "glue": ("UpdateDevEndpoint",),
    "sagemaker": ("CreatePresignedNotebookInstanceUrl",),
    "ssm": ("SendCommand", "StartSession", "GetParameter"),
    "ec2-instance-connect": ("SendSSHPublicKey",),
    "ec2": (
        *("AttachNetworkInterface", "CreateNetworkInterface", "DeleteNetworkInterface"),
        *("ModifyInstanceAttribute", "ModifyNetworkInterfaceAttribute"),
    ),
    "sts": ("AssumeRole",),
    "kms": ("CreateGrant", "PutKeyPolicy", "Decrypt"),
    "secretsmanager": ("GetSecretValue", "PutResourcePolicy"),
    "organizations": ("LeaveOrganization",),
    "cloudtrail": ("StopLogging",),
}

ON_FUNCTIONS = (
    *("AddPermission", "CreateEventSourceMapping", "CreateFunctionUrlConfig", "PublishVersion"),
    *("PutFunctionEventInvokeConfig", "PutResourcePolicy", "UpdateEventSourceMapping"),
    *("UpdateFunctionEventInvokeConfig", "UpdateFunctionUrlConfig", "RemovePermission"),
)
ON_REPOSITORIES = ("PutRegistryPolicy", "PutReplicationConfiguration", "CreatePullThroughCacheRule")
ON_STACKS = (
    *(
        "CreateChangeSet",
        "CreateStack",
        "CreateStackRefactor",
        "DeleteStack",
        "ExecuteChangeSet",
        "ImportStacksToStackSet",
    ),
    *("SetStackPolicy", "SetTypeConfiguration", "UpdateStack", "UpdateTerminationProtection"),
)
ON_LOGS = ("AssociateKmsKey", "PutDestinationPolicy", "PutResourcePolicy", "PutSubscriptionFilter")
ON_BUCKETS = (
    *("BypassGovernanceRetention", "DeleteBucketPolicy", "PutBucketAcl", "PutBucketPolicy"),
    *("PutLifecycleConfiguration", "PutReplicationConfiguration"),
)
ON_OBJECTS = ("DeleteObjectVersion", "PutObjectAcl")

ADMINISTRATOR = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
"""What an intruder gives a role."""


def ways(names: Names, bucket: str) -> Iterator[Way]:
    """All of them, against a deployment, its account and the bucket of its stages."""
    partition = names.role_arn.partition(":iam:")[0]
    iam = f"{partition}:iam::{names.account}"
    others = {
        "policy": (f"{iam}:policy/other", names.boundary_arn),
        "user": (f"{iam}:user/intruder", f"{iam}:user/administrator"),
        "group": (f"{iam}:group/administrators",),
        "role": (names.role_arn, f"{iam}:role/administrator", f"{iam}:role/{names.name}"),
        "instance-profile": (f"{iam}:instance-profile/{names.role}",),
        "saml-provider": (f"{iam}:saml-provider/{names.name}",),
        "oidc-provider": (f"{iam}:oidc-provider/{names.name}",),
    }
    unbounded: tuple[dict[str, Values], ...] = (
        {},
        {"iam:PermissionsBoundary": ("arn:aws:iam::aws:policy/AdministratorAccess",)},
        {"iam:PermissionsBoundary": (f"{iam}:policy/{names.boundary}2",)},
    )
    for kind, actions in ON_IAM.items():
        for action in actions:
            for target in others[kind]:
                for context in unbounded if kind == "role" else ({},):
                    yield Way(f"{action} on {target}", Request(f"iam:{action}", target, context))
    # With the boundary, too: nobody but IAM's own conditions says who may take the role.
    bounded = {"iam:PermissionsBoundary": (names.boundary_arn,)}
    for action in ("DeleteRolePermissionsBoundary", "AttachRolePolicy", "UpdateAssumeRolePolicy"):
        yield Way(f"{action} on the bounded role", Request(f"iam:{action}", names.role_arn, bounded))
    yield Way("take the role oneself", Request("sts:AssumeRole", names.role_arn))
    for role in others["role"]:
        for service, actions in WITH_A_PASSED_ROLE.items():
            passing = Request("iam:PassRole", role, {"iam:PassedToService": (f"{service}.amazonaws.com",)})
            yield Way(f"pass {role} to {service}", passing)
            for action in actions:
                yield Way(f"{service}:{action} with {role}", passing, Request(f"{service}:{action}", "*"))
    yield from _with_functions(names, others["role"][1:], unbounded)
    for service, actions in WITHOUT_ONE.items():
        for action in actions:
            yield Way(f"{service}:{action}", Request(f"{service}:{action}", "*"))
    yield from _with_data(names, bucket)


def _with_functions(names: Names, roles: tuple[str, ...], unbounded: tuple[dict[str, Values], ...]) -> Iterator[Way]:
    other = names.function_arn + "-other"
    version, layer = f"{names.function_arn}:1", names.function_arn.replace(":function:", ":layer:")
    to_lambda = {"iam:PassedToService": ("lambda.amazonaws.com",)}
    network = {
        "lambda:SubnetIds": ("subnet-ffff",),
        "lambda:SecurityGroupIds": ("sg-ffff",),
        "lambda:VpcIds": ("vpc-ffff",),
    }
    for role in roles:
        passing = Request("iam:PassRole", role, to_lambda)
        yield Way(f"a function with {role}", passing, Request("lambda:CreateFunction", names.function_arn))
    for context in unbounded:
        # The way of issue 19: a role without a boundary, all rights, and a function that has them.
        steps = [Request(f"iam:{action}", names.role_arn, context) for action in ("CreateRole", "PutRolePolicy")]
        steps.append(Request("iam:PassRole", names.role_arn, to_lambda))
        steps += [
            Request(f"lambda:{action}", names.function_arn) for action in ("UpdateFunctionCode", "InvokeFunction")
        ]
        yield Way("an unbounded role for one's own function", *steps)
    for action in ("UpdateFunctionCode", "UpdateFunctionConfiguration", "InvokeFunction", "CreateFunction"):
        yield Way(f"{action} of another function", Request(f"lambda:{action}", other))
    for action in ("CreateFunction", "UpdateFunctionConfiguration"):
        yield Way(f"{action} in another network", Request(f"lambda:{action}", names.function_arn, network))
    for action in ON_FUNCTIONS:
        for target in (names.function_arn, other, version, "*"):
            yield Way(f"{action} on {target}", Request(f"lambda:{action}", target))
    for action in ("AddLayerVersionPermission", "PublishLayerVersion"):
        yield Way(action, Request(f"lambda:{action}", layer))
    for service, target in (("lambda", names.function_arn), ("iam", names.role_arn), ("ecr", names.repository_arn)):
        tag = {"aws:TagKeys": ("team", "dorylax"), "aws:RequestTag/dorylax": (names.name,)}
        action = f"{service}:{'TagRole' if service == 'iam' else 'TagResource'}"
        yield Way(
            f"{action} with tags that others go by", Request(action, target, tag | {"aws:RequestTag/team": ("x",)})
        )


def _with_data(names: Names, bucket: str) -> Iterator[Way]:
    other = names.repository_arn + "-other"
    log = names.log_group_arn + "-other:*"
    for action in ON_REPOSITORIES:
        for target in (names.repository_arn, "*"):
            yield Way(f"{action} on {target}", Request(f"ecr:{action}", target))
    for action in ("SetRepositoryPolicy", "PutImage", "PutLifecyclePolicy", "BatchDeleteImage", "DeleteRepository"):
        yield Way(f"{action} on another repository", Request(f"ecr:{action}", other))
    for action in ON_LOGS:
        for target in (f"{names.log_group_arn}:*", log, "*"):
            yield Way(f"{action} on {target}", Request(f"logs:{action}", target))
    for action in ("FilterLogEvents", "DeleteLogGroup"):
        yield Way(f"{action} of another log group", Request(f"logs:{action}", log))
    stacks = [arn.replace(names.name, f"{names.name}-other") for arn in names.stack_arns]
    for action in ON_STACKS:
        for target in (*stacks, "*"):
            yield Way(f"{action} of {target}", Request(f"cloudformation:{action}", target))
    arn = names.bucket_arn(bucket)
    for action in ON_BUCKETS:
        yield Way(action, Request(f"s3:{action}", arn))
    for action in ON_OBJECTS:
        yield Way(action, Request(f"s3:{action}", f"{arn}/stages/{0:064x}"))
    for action in ("PutObject", "GetObject", "DeleteObject"):
        yield Way(f"{action} outside of the prefix", Request(f"s3:{action}", f"{arn}/stages2/{0:064x}"))
    yield Way("list what is outside of the prefix", Request("s3:ListBucket", arn, {"s3:prefix": ("other/",)}))
