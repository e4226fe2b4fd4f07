"""What is to be deployed: one frozen set of numbers and names, checked whole."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Mapping
from typing import Any, Literal, final

from dorylax.errors import DorylaxError
from dorylax.serverless.backends.aws.artefacts import Location
from dorylax.serverless.config import TensorConfigError

Architecture = Literal["x86_64", "arm64"]
ARCHITECTURES: tuple[str, ...] = typing.get_args(Architecture)

RETENTION_DAYS = (
    1,
    3,
    5,
    7,
    14,
    30,
    60,
    90,
    120,
    150,
    180,
    365,
    400,
    545,
    731,
    1096,
    1827,
    2192,
    2557,
    2922,
    3288,
    3653,
)
"""What CloudWatch Logs accepts."""

# Narrower than each of what AWS allows for functions, repositories, roles (with the region appended) and log groups.
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME_LENGTH = (2, 40)
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_RANGES = {"memory_mb": (128, 10240), "timeout_seconds": (1, 900)}
_IDS = {"subnets": re.compile(r"subnet-[0-9a-f]+"), "security_groups": re.compile(r"sg-[0-9a-f]+")}


class DeploymentError(DorylaxError, ValueError):
    """A deployment that cannot be; its text is one line for the user.

    Attributes:
        key: the key that is wrong.
    """

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        super().__init__(f"{key} {problem}")


@final
@dataclasses.dataclass(frozen=True)
class Deployment:
    """One function in AWS Lambda and what it needs there.

    Attributes:
        name: of the function, the image's repository and the log group, and the beginning of the role's.
        region: of AWS; None: that of the environment or of the AWS profile.
        architecture: of the function's processors: "x86_64" or "arm64", which is a fifth cheaper.
        memory_mb: 128 … 10240; 1769 MB have one virtual CPU.
        timeout_seconds: after which AWS ends a call, 1 … 900.
        subnets, security_groups: of the VPC that the function dials out from; both or neither.
        reserved_concurrency: functions at a time that are set aside, and its limit, ≥ 1; None: of the account's common ones.
        log_retention_days: after which log lines are deleted.
        lapack: put SciPy into the image, for models with `jnp.linalg`: 140 MB more.
        artefacts: `s3://bucket/prefix`, the `tensor.artefacts` of runs: who trains is to have rights there, and stages there
            are deleted with all else; None: none.

    Raises:
        DeploymentError: a value out of range; names the key.
    """

    name: str = "dorylax"
    region: str | None = None
    architecture: Architecture = "x86_64"
    memory_mb: int = 1769
    timeout_seconds: int = 900
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    reserved_concurrency: int | None = None
    log_retention_days: int = 7
    lapack: bool = False
    artefacts: str | None = None

    def __post_init__(self) -> None:
        _check_text("name", self.name)
        least, most = _NAME_LENGTH
        if not (least <= len(self.name) <= most and _NAME.fullmatch(self.name)):
            raise DeploymentError(
                "name",
                f"must be {least} to {most} of a-z, 0-9 and single hyphens between, as in my-run, got {self.name!r}",
            )
        if self.region is not None:
            _check_text("region", self.region)
            if not _REGION.fullmatch(self.region):
                raise DeploymentError("region", f"must be one of AWS, as in us-east-1, got {self.region!r}")
        _check_choice("architecture", self.architecture, ARCHITECTURES)
        for key, (least, most) in _RANGES.items():
            _check_count(key, getattr(self, key), least, most)
        for key, pattern in _IDS.items():
            _check_ids(key, getattr(self, key), pattern)
            object.__setattr__(self, key, tuple(dict.fromkeys(getattr(self, key))))
        if bool(self.subnets) != bool(self.security_groups):
            given, missing = ("subnets", "security_groups") if self.subnets else ("security_groups", "subnets")
            raise DeploymentError(missing, f"must be given too, for a VPC needs both: got {given} alone")
        if self.reserved_concurrency is not None:
            _check_count("reserved_concurrency", self.reserved_concurrency, 1, None)
        _check_count("log_retention_days", self.log_retention_days, 1, None)
        if self.log_retention_days not in RETENTION_DAYS:
            near = min(RETENTION_DAYS, key=lambda days: abs(days - self.log_retention_days))
            raise DeploymentError(
                "log_retention_days", f"must be one that CloudWatch has, such as {near}, got {self.log_retention_days}"
            )
        if not isinstance(self.lapack, bool):
            raise DeploymentError("lapack", f"must be true or false, got {self.lapack!r}")
        if self.artefacts is not None:
            _check_text("artefacts", self.artefacts)
            _location(self.artefacts)

    @property
    def location(self) -> Location | None:
        """Where artefacts lie."""
        return None if self.artefacts is None else _location(self.artefacts)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Deployment:
        """The deployment that keys and values describe, as a YAML file has them.

        Raises:
            DeploymentError: an unknown key, or a value out of range.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
                raise DeploymentError(key, f"is no setting of a deployment: {hint}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The fields, in order, as YAML may carry them; `Deployment.of` of it is equal to this."""
        values = dataclasses.asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _location(text: str) -> Location:
    try:
        return Location.of(text)
    except TensorConfigError:
        raise DeploymentError("artefacts", f"must be s3://bucket/prefix, got {text!r}") from None


def _check_text(key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise DeploymentError(key, f"must be text, got {value!r}")


def _check_choice(key: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise DeploymentError(key, f"must be one of {', '.join(choices)}, got {value!r}{hint}")


def _check_count(key: str, value: Any, least: int, most: int | None) -> None:
    wanted = f"≥ {least}" if most is None else f"in {least} … {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise DeploymentError(key, f"must be a whole number {wanted}, got {value!r}")
    if value < least or (most is not None and value > most):
        raise DeploymentError(key, f"must be {wanted}, got {value}")


def _check_ids(key: str, value: Any, pattern: re.Pattern[str]) -> None:
    example = {"subnets": "subnet-0a1b2c3d", "security_groups": "sg-0a1b2c3d"}[key]
    if not isinstance(value, list | tuple):
        raise DeploymentError(key, f"must be a list of ids, as in [{example}], got {value!r}")
    for entry in value:
        if not isinstance(entry, str) or not pattern.fullmatch(entry):
            raise DeploymentError(key, f"must be ids such as {example}, got {entry!r}")
