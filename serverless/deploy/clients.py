"""Clients of AWS for one region, and the translation of their errors into `RunError` and `InputError`."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, final

from dorylax.errors import InputError, RunError
from dorylax.store.aws import class_names, code_of, lasting_problem, make_client

T = TypeVar("T")

_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_REGION = "--region or AWS_REGION"
_INVOKE = "invoke"
_INVOKE_SECONDS = 910  # longer than Lambda's maximum timeout of 900 s


@final
class Clients:
    """Lazily created boto3 clients for one AWS region.

    Args:
        region: AWS region, or None for the region of the environment or profile.

    Attributes:
        region: Name of the AWS region.

    Raises:
        InputError: If boto3 is not installed or no region is configured.
    """

    def __init__(self, region: str | None) -> None:
        if importlib.util.find_spec("boto3") is None:
            raise InputError('boto3 is not installed: pip install "dorylax[aws]"')
        self._region, self._made = region, dict[str, Any]()
        try:
            self.region: str = self("cloudformation").meta.region_name
        except RunError as error:
            raise InputError(str(error)) from None

    def __call__(self, service: str) -> Any:
        """Return the client of a service by its name in boto3, or of "invoke".

        "invoke" is a Lambda client whose read timeout exceeds the longest invocation. It never retries, because every
        invocation is billed.
        """
        if service not in self._made:
            name = service
            config: dict[str, Any] = {"retries": {"mode": "standard", "total_max_attempts": 5}}
            if service == _INVOKE:
                name, config = "lambda", {"read_timeout": _INVOKE_SECONDS, "retries": {"total_max_attempts": 1}}
            self._made[service] = make_client(name, self._region, region_setting=_REGION, **config)
        return self._made[service]

    def account(self) -> str:
        """Return the account id of the credentials."""
        return str(self("sts").get_caller_identity()["Account"])

    def close(self) -> None:
        """Close all connections. Idempotent."""
        while self._made:
            self._made.popitem()[1].close()


def unless(codes: set[str], call: Callable[[], T]) -> T | None:
    """Return the result of a call, or None if AWS refuses it with one of these error codes."""
    try:
        return call()
    except Exception as error:
        if code_of(error) in codes:
            return None
        raise


@contextlib.contextmanager
def in_plain_words() -> Iterator[None]:
    """Translate errors of boto3: `InputError` for unusable credentials, `RunError` for all others."""
    try:
        yield
    except Exception as error:
        if (problem := lasting_problem(error, region=_REGION)) is not None:
            raise InputError(str(problem)) from None
        if (code := code_of(error)) is not None:
            raise RunError(_refused(error, code)) from None
        if "BotoCoreError" in class_names(error):
            raise RunError(f"AWS cannot be asked: {_line(str(error))}") from None
        raise


def _refused(error: Any, code: str) -> str:
    text = f"AWS refuses {error.operation_name}: {code}: {_line(error.response['Error'].get('Message', ''))}"
    return f"{text}: docs/aws.md has the policies that are needed" if code in _DENIED else text


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
