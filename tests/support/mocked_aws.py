"""AWS without AWS: moto in this process, made-up credentials, a record of all calls, and no way out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, NoReturn, final

import pytest

from dorylax.serverless.deploy import policies
from dorylax.serverless.deploy.names import Names
from support.iam import Request, requests

REGION = "eu-west-1"
READS = ("Get", "List", "Describe", "Filter")
_ACCOUNT = Names("any", "123456789012", REGION)


@functools.cache
def client(service: str) -> Any:
    """A client of a service. It keeps no connection, since it never gets one; to make one takes a second."""
    import boto3

    return boto3.client(service, region_name=REGION)


@final
@dataclasses.dataclass
class MockedAws:
    """What was asked of AWS, and what is to fail.

    Attributes:
        calls: as `service:Operation`, in order.
        requests: what IAM has to allow for them, in order.
        fail_at: which call that changes something fails, from 0; None for none.
    """

    calls: list[str] = dataclasses.field(default_factory=list)
    requests: list[Request] = dataclasses.field(default_factory=list)
    fail_at: int | None = None

    @property
    def changes(self) -> list[str]:
        """The calls that may have changed something."""
        return [call for call in self.calls if not call.partition(":")[2].startswith(READS)]

    @property
    def actions(self) -> set[str]:
        """What IAM calls all of them."""
        return {request.action for request in self.requests}

    def make_boundary(self, name: str, *, vpc: bool = True) -> None:
        """Makes a deployment's permissions boundary, as an administrator would: such calls are not on record."""
        names = Names(name, _ACCOUNT.account, REGION)
        document = json.dumps(policies.boundary_policy(names, vpc=vpc))
        with self.unrecorded():
            client("iam").create_policy(PolicyName=names.boundary, PolicyDocument=document)

    def make_network(self) -> dict[str, tuple[str, ...]]:
        """Makes two subnets and a security group, as settings of a deployment: such calls are not on record."""
        ec2 = client("ec2")
        with self.unrecorded():
            vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
            subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{k}.0/24")["Subnet"]["SubnetId"] for k in range(2)]
            group = ec2.create_security_group(GroupName="gnn", Description="gnn", VpcId=vpc)["GroupId"]
        return {"subnets": tuple(subnets), "security_groups": (group,)}

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Calls in here are not on record."""
        calls, asked = list(self.calls), list(self.requests)
        try:
            yield
        finally:
            self.calls[:], self.requests[:] = calls, asked

    def everything(self) -> dict[str, list[str]]:
        """All that there is in AWS, whosever it is."""
        return {
            "functions": [entry["FunctionName"] for entry in client("lambda").list_functions()["Functions"]],
            "roles": [entry["RoleName"] for entry in client("iam").list_roles()["Roles"]],
            "policies": [entry["PolicyName"] for entry in client("iam").list_policies(Scope="Local")["Policies"]],
            "log groups": [entry["logGroupName"] for entry in client("logs").describe_log_groups()["logGroups"]],
            "repositories": [
                entry["repositoryName"] for entry in client("ecr").describe_repositories()["repositories"]
            ],
            "network interfaces": [
                entry["NetworkInterfaceId"]
                for entry in client("ec2").describe_network_interfaces()["NetworkInterfaces"]
            ],
            "stacks": [entry["StackName"] for entry in client("cloudformation").describe_stacks()["Stacks"]],
            "buckets": [entry["Name"] for entry in client("s3").list_buckets()["Buckets"]],
        }

    def push(self, address: str) -> None:
        """Puts an image into a repository."""
        put_image(client("ecr"), address)


def put_image(ecr: Any, address: str) -> None:
    """Puts an image into a repository, as a container engine would."""
    repository, _, tag = address.partition("/")[2].partition(":")
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    digest = f"sha256:{hashlib.sha256(address.encode()).hexdigest()}"
    manifest = {
        "schemaVersion": 2,
        "mediaType": kind,
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 1, "digest": digest},
        "layers": [],
    }
    ecr.put_image(
        repositoryName=repository,
        imageManifest=json.dumps(manifest),
        imageManifestMediaType=kind,
        imageTag=tag,
        imageDigest=digest,
    )


def mend_moto(patch: pytest.MonkeyPatch) -> None:
    """Let moto execute the parts of templates that it skips."""
    from moto.awslambda.models import LambdaFunction
    from moto.ecr.models import Repository, ecr_backends
    from moto.logs.models import LogGroup

    create_function, update_function = (
        getattr(LambdaFunction, f"{verb}_from_cloudformation_json") for verb in ("create", "update")
    )

    def created(*given: Any, **more: Any) -> Any:
        function = create_function(*given, **more)
        properties = given[1]["Properties"]
        function.package_type, function.architectures = properties["PackageType"], properties["Architectures"]
        return function

    def updated(**given: Any) -> Any:
        function, properties = update_function(**given), given["cloudformation_json"]["Properties"]
        function.architectures = properties["Architectures"]
        function.reserved_concurrency = properties.get("ReservedConcurrentExecutions")
        return function

    def kept_for(*, original_resource: Any, cloudformation_json: Any, **_: Any) -> Any:
        original_resource.retention_in_days = cloudformation_json["Properties"]["RetentionInDays"]
        return original_resource

    def emptied(repository: Any, account: str, region: str) -> None:
        ecr_backends[account][region].delete_repository(repository.name, force=True)

    patch.setattr(LambdaFunction, "create_from_cloudformation_json", staticmethod(created))
    patch.setattr(LambdaFunction, "update_from_cloudformation_json", staticmethod(updated))
    patch.setattr(LogGroup, "update_from_cloudformation_json", staticmethod(kept_for))
    patch.setattr(Repository, "delete", emptied)


@contextlib.contextmanager
def mocked_aws() -> Iterator[MockedAws]:
    """moto for all of AWS; whatever it does not answer fails the test."""
    pytest.importorskip("moto", reason="needs moto")
    from botocore.client import BaseClient
    from botocore.exceptions import ClientError
    from moto import mock_aws

    found = MockedAws()
    ask = BaseClient._make_api_call

    def boundary_of(role: str) -> str | None:
        with contextlib.suppress(ClientError):
            described = ask(client("iam"), "GetRole", {"RoleName": role})["Role"]
            boundary: str | None = described.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn")
            return boundary
        return None

    def recorded(asking: Any, operation: str, parameters: Any) -> Any:
        call = f"{asking.meta.service_model.signing_name}:{operation}"
        found.calls.append(call)
        found.requests += requests(_ACCOUNT, call, parameters, boundary_of)
        if not operation.startswith(READS) and len(found.changes) - 1 == found.fail_at:
            raise ClientError({"Error": {"Code": "ServiceException", "Message": "as the test says"}}, operation)
        return ask(asking, operation, parameters)

    def refuse(_: Any, request: Any) -> NoReturn:
        pytest.fail(f"nothing answers {request.method} {request.url} here")

    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("AWS_"):
                patch.delenv(name)
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "MOTO_LAMBDA_STUB_ECR": "false",
        }.items():
            patch.setenv(name, value)
        patch.setattr("botocore.httpsession.URLLib3Session.send", refuse)
        patch.setattr(BaseClient, "_make_api_call", recorded)
        mend_moto(patch)
        with mock_aws(config={"lambda": {"use_docker": False}}):
            yield found


def without_credentials(patch: pytest.MonkeyPatch) -> None:
    """Takes the credentials away."""
    patch.delenv("AWS_ACCESS_KEY_ID")
    patch.delenv("AWS_SECRET_ACCESS_KEY")
