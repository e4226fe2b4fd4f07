"""Names of a deployment's AWS resources. Pure."""

from __future__ import annotations

import dataclasses
from typing import final

TAG = "dorylax"
"""Key of the tag whose value is the deployment's name. Resources without it have another owner."""


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
        """Tags of every resource."""
        return {TAG: self.name}

    @property
    def role(self) -> str:
        """Name of the role. It includes the region, because roles belong to the account and functions to a region."""
        return f"{self.name}-{self.region}"

    @property
    def log_group(self) -> str:
        """Name of the log group, as prescribed by Lambda."""
        return f"/aws/lambda/{self.name}"

    @property
    def function_arn(self) -> str:
        """ARN of the function."""
        return self._arn("lambda", f"function:{self.name}")

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
    def log_group_arn(self) -> str:
        """ARN of the log group, without `:*`."""
        return self._arn("logs", f"log-group:{self.log_group}")

    @property
    def repository_arn(self) -> str:
        """ARN of the repository."""
        return self._arn("ecr", f"repository/{self.name}")

    @property
    def registry(self) -> str:
        """Host of the image registry."""
        suffix = ".cn" if self._partition == "aws-cn" else ""
        return f"{self.account}.dkr.ecr.{self.region}.amazonaws.com{suffix}"

    def image(self, tag: str) -> str:
        """Return the address of an image in the deployment's repository by tag."""
        return f"{self.registry}/{self.name}:{tag}"

    def pinned_image(self, digest: str) -> str:
        """Return the address of an image in the deployment's repository by digest, which later pushes cannot change."""
        return f"{self.registry}/{self.name}@{digest}"

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
