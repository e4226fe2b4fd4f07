"""Validated, immutable settings of a deployment."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from dorylax.serverless.deploy.image.base import is_base
from dorylax.settings.errors import ConfigError
from dorylax.settings.section import Count, Section
from dorylax.store.base import Location

Architecture = Literal["x86_64", "arm64"]

RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365),
    *(400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
"""Retention times in days that CloudWatch Logs accepts."""

# Stricter than AWS's rules for functions, repositories, roles (with the region appended) and log groups.
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME_LENGTH = (2, 40)
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


def _name(name: str) -> str:
    least, most = _NAME_LENGTH
    if not (least <= len(name) <= most and _NAME.fullmatch(name)):
        raise ValueError(
            f"must be {least} to {most} of a-z, 0-9 and single hyphens between, as in my-run, got {name!r}"
        )
    return name


def _region(region: str) -> str:
    if not _REGION.fullmatch(region):
        raise ValueError(f"must be one of AWS, as in us-east-1, got {region!r}")
    return region


def _retention(days: int) -> int:
    if days not in RETENTION_DAYS:
        near = min(RETENTION_DAYS, key=lambda one: abs(one - days))
        raise ValueError(f"must be one that CloudWatch has, such as {near}, got {days}")
    return days


def _base(address: str) -> str:
    if not is_base(address):
        raise ValueError(f"must be HOST/NAME@sha256:… or HOST/NAME:TAG, got {address!r}")
    return address


def _artefacts(text: str) -> str:
    Location.of(text)
    return text


def _ids(kind: str) -> BeforeValidator:
    """Return a validator for a list of AWS ids such as `sg-0a1b2c3d`, which removes duplicates."""

    def checked(value: Any) -> tuple[str, ...]:
        example = f"{kind}-0a1b2c3d"
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of ids, as in [{example}], got {value!r}")
        for entry in value:
            if not isinstance(entry, str) or not re.fullmatch(rf"{kind}-[0-9a-f]+", entry):
                raise ValueError(f"must be ids such as {example}, got {entry!r}")
        return tuple(dict.fromkeys(value))

    return BeforeValidator(checked)


@final
class Deployment(Section):
    """Settings of one AWS Lambda function and its resources.

    Raises:
        ConfigError: If a value is out of range. The error names the key.
    """

    name: Annotated[str, AfterValidator(_name)] = Field(
        default="dorylax",
        description="name of the deployment and of its resources",
    )
    region: Annotated[str, AfterValidator(_region)] | None = Field(
        default=None, description="AWS region; none: that of the environment or of the AWS profile"
    )
    architecture: Architecture = Field(
        default="x86_64", description="processors of the function; arm64 costs a fifth less"
    )
    memory_mb: Annotated[int, Field(ge=128, le=10240)] = Field(
        default=1769, description="memory in MB; 1769 MB buy one virtual CPU"
    )
    timeout_seconds: Annotated[int, Field(ge=1, le=900)] = Field(
        default=900, description="time limit of a call in seconds"
    )
    subnets: Annotated[tuple[str, ...], _ids("subnet")] = Field(
        default=(),
        description="subnet of the VPC that the function connects from; needs security groups",
    )
    security_groups: Annotated[tuple[str, ...], _ids("sg")] = Field(default=(), description="security group in the VPC")
    reserved_concurrency: Count | None = Field(
        default=None,
        description="concurrent functions to reserve, which are also the limit; none: the account's common ones",
    )
    log_retention_days: Annotated[Count, AfterValidator(_retention)] = Field(
        default=7, description="days for which log lines are kept"
    )
    lapack: bool = Field(default=False, description="put SciPy into the image, for models with jnp.linalg: 140 MB more")
    base: Annotated[str, AfterValidator(_base)] | None = Field(
        default=None,
        description="base image, best by digest; none: Python's, whose digest is looked up when the image is built",
    )
    lock: str | None = Field(
        default=None, description="file with hashes of the image's wheels; none: those that come with dorylax"
    )
    artefacts: Annotated[str, AfterValidator(_artefacts)] | None = Field(
        default=None,
        description="place of stages in S3, the tensor.artefacts of runs: the policies include it, and a teardown deletes "
        "the stages there",
    )

    @property
    def location(self) -> Location | None:
        """Location of the artefacts, or None."""
        return None if self.artefacts is None else Location.of(self.artefacts)

    @model_validator(mode="after")
    def _check(self) -> Deployment:
        if bool(self.subnets) != bool(self.security_groups):
            given, missing = ("subnets", "security_groups") if self.subnets else ("security_groups", "subnets")
            raise ConfigError.of(missing, f"must be given too, for a VPC needs both: got {given} alone")
        return self
