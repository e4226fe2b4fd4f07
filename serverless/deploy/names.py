"""Names of a deployment's AWS resources. Pure."""

from __future__ import annotations

import dataclasses
from typing import final

TAG = "dorylax"
"""Key of the tag whose value is the deployment's name. Stacks without it have another owner."""


@final
@dataclasses.dataclass(frozen=True)
class Names:
    """Names and ARNs of one deployment's resources.

    Attributes:
        name: Name of the deployment, its function, and its repository.
        account: AWS account id, 12 digits.
        region: AWS region.
    """

    name: str
    account: str
    region: str

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the stacks. CloudFormation copies them to the resources."""
        return {TAG: self.name}

    @property
    def repository_stack(self) -> str:
        """Name of the stack with the image repository. Deployments' names have no capital letters."""
        return f"{self.name}-Repository"

    @property
    def function_stack(self) -> str:
        """Name of the stack with the function, its role, and its log group."""
        return f"{self.name}-Function"

    @property
    def stack_arns(self) -> list[str]:
        """Patterns of the stacks' ARNs, which end with a random id."""
        return [
            self._arn("cloudformation", f"stack/{stack}/*") for stack in (self.repository_stack, self.function_stack)
        ]

    @property
    def role(self) -> str:
        """Name of the role. It includes the region, because roles belong to the account and functions to a region."""
        return f"{self.name}-{self.region}"

    @property
    def role_arn(self) -> str:
        """ARN of the role."""
        return f"arn:{self._partition}:iam::{self.account}:role/{self.role}"

    @property
    def boundary(self) -> str:
        """Name of the policy for the role's permissions boundary."""
        return f"{self.role}-boundary"

    @property
    def boundary_arn(self) -> str:
        """ARN of the permissions boundary."""
        return f"arn:{self._partition}:iam::{self.account}:policy/{self.boundary}"

    @property
    def function_arn(self) -> str:
        """ARN of the function."""
        return self._arn("lambda", f"function:{self.name}")

    @property
    def log_group(self) -> str:
        """Name of the log group, as prescribed by Lambda."""
        return f"/aws/lambda/{self.name}"

    @property
    def log_group_arn(self) -> str:
        """ARN of the log group, without `:*`."""
        return self._arn("logs", f"log-group:{self.log_group}")

    @property
    def repository_arn(self) -> str:
        """ARN of the repository."""
        return self._arn("ecr", f"repository/{self.name}")

    @property
    def repository(self) -> str:
        """Address of the repository, to which `:TAG` or `@DIGEST` is appended."""
        suffix = ".cn" if self._partition == "aws-cn" else ""
        return f"{self.account}.dkr.ecr.{self.region}.amazonaws.com{suffix}/{self.name}"

    def bucket_arn(self, bucket: str) -> str:
        """Return the ARN of a bucket. Bucket names are unique in the partition."""
        return f"arn:{self._partition}:s3:::{bucket}"

    @property
    def _partition(self) -> str:
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self._partition}:{service}:{self.region}:{self.account}:{resource}"
