"""The names of a deployment's resources. No effects."""

from __future__ import annotations

import dataclasses
from typing import final

TAG = "dorylax"
"""The tag's key; its value is the deployment's name. Resources without it belong to somebody else."""


@final
@dataclasses.dataclass(frozen=True)
class Names:
    """Names and ARNs of one deployment's resources.

    Attributes:
        name: of the deployment, and of its function and repository.
        account: of AWS, 12 digits.
        region: of AWS.
    """

    name: str
    account: str
    region: str

    @property
    def tags(self) -> dict[str, str]:
        """What every resource is tagged with."""
        return {TAG: self.name}

    @property
    def role(self) -> str:
        """The role's name: roles belong to the account, functions to a region."""
        return f"{self.name}-{self.region}"

    @property
    def log_group(self) -> str:
        """The log group's name, which Lambda prescribes."""
        return f"/aws/lambda/{self.name}"

    @property
    def function_arn(self) -> str:
        """Of the function."""
        return self._arn("lambda", f"function:{self.name}")

    @property
    def role_arn(self) -> str:
        """Of the role."""
        return f"arn:{self._partition}:iam::{self.account}:role/{self.role}"

    @property
    def boundary(self) -> str:
        """Name of the policy that is the role's permissions boundary."""
        return f"{self.role}-boundary"

    @property
    def boundary_arn(self) -> str:
        """Of the permissions boundary."""
        return f"arn:{self._partition}:iam::{self.account}:policy/{self.boundary}"

    @property
    def log_group_arn(self) -> str:
        """Of the log group, without `:*`."""
        return self._arn("logs", f"log-group:{self.log_group}")

    @property
    def repository_arn(self) -> str:
        """Of the repository."""
        return self._arn("ecr", f"repository/{self.name}")

    @property
    def registry(self) -> str:
        """The host that images are pushed to."""
        suffix = ".cn" if self._partition == "aws-cn" else ""
        return f"{self.account}.dkr.ecr.{self.region}.amazonaws.com{suffix}"

    def image(self, tag: str) -> str:
        """The address in the deployment's own repository that an image is pushed to."""
        return f"{self.registry}/{self.name}:{tag}"

    def pinned_image(self, digest: str) -> str:
        """The address of one image in the deployment's own repository, whatever is pushed to it later."""
        return f"{self.registry}/{self.name}@{digest}"

    def bucket_arn(self, bucket: str) -> str:
        """Of a bucket; its name is unique in the partition."""
        return f"arn:{self._partition}:s3:::{bucket}"

    @property
    def _partition(self) -> str:
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self._partition}:{service}:{self.region}:{self.account}:{resource}"
