"""Lazily created boto3 clients, and the translation of their errors into `RunError` and `InputError`.

Only this module imports boto3, and only for commands that call AWS.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar, final

from dorylax.errors import InputError, RunError
from dorylax.store.aws import region_of

T = TypeVar("T")

_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
_UNSIGNED = {
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "IncompleteSignature",
    "IncompleteSignatureException",
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
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
        InputError: If no region is configured or boto3 is not installed.
    """

    def __init__(self, region: str | None) -> None:
        with in_plain_words():
            self._session = _library("boto3.session").Session(region_name=region_of(region))
        if self._session.region_name is None:
            raise InputError("no AWS region is set: give --region, or set AWS_REGION")
        self.region: str = self._session.region_name
        self._made: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        """Return the client of a service: "lambda", "iam", "ecr", "logs", "ec2", "s3", "sts", or "invoke".

        "invoke" is a Lambda client whose read timeout exceeds the longest invocation. It never retries, because every
        invocation is billed.
        """
        if service not in self._made:
            config = _library("botocore.config").Config(
                **(
                    {"read_timeout": _INVOKE_SECONDS, "retries": {"total_max_attempts": 1}}
                    if service == _INVOKE
                    else {"retries": {"mode": "standard", "total_max_attempts": 5}}
                )
            )
            name = "lambda" if service == _INVOKE else service
            self._made[service] = self._session.client(name, region_name=self.region, config=config)
        return self._made[service]

    def account(self) -> str:
        """Return the account id of the credentials."""
        return str(self("sts").get_caller_identity()["Account"])

    def close(self) -> None:
        """Close all connections. Idempotent."""
        while self._made:
            self._made.popitem()[1].close()


def unless(codes: set[str], call: Callable[[], T]) -> T | None:
    """Return the result of a call, or None if it fails with one of these AWS error codes."""
    try:
        return call()
    except _library("botocore.exceptions").ClientError as error:
        if error.response["Error"]["Code"] in codes:
            return None
        raise


def is_refused(codes: set[str], texts: tuple[str, ...], call: Callable[[], object]) -> bool:
    """Make a call and return whether AWS refuses it.

    Args:
        codes: Error codes that count as a refusal.
        texts: Texts of which the error message must contain at least one.
        call: Call to make.
    """
    try:
        call()
    except _library("botocore.exceptions").ClientError as error:
        found = error.response["Error"]
        if found["Code"] in codes and any(text in found.get("Message", "") for text in texts):
            return True
        raise
    return False


def in_time(wait: Callable[[], object]) -> bool:
    """Run a boto3 waiter and return whether it succeeded."""
    try:
        wait()
    except _library("botocore.exceptions").WaiterError:
        return False
    return True


@contextlib.contextmanager
def in_plain_words() -> Iterator[None]:
    """Translate errors of boto3 into `RunError` or `InputError`."""
    errors = _library("botocore.exceptions")
    try:
        yield
    except errors.ClientError as error:
        raise RunError(_refused(error)) from None
    except errors.BotoCoreError as error:
        if type(error).__name__ in _CREDENTIALS or "Token" in type(error).__name__:
            raise InputError(
                f"no AWS credentials can be used ({_line(error)}): run `aws configure` or `aws sso login`, "
                "or set AWS_PROFILE"
            ) from None
        raise RunError(f"AWS cannot be asked: {_line(error)}") from None


def _refused(error: Any) -> str:
    code = error.response["Error"]["Code"]
    if code in _UNSIGNED:  # omit AWS's text: it may quote the signed request, including a session token
        return f"AWS refuses {error.operation_name}: {code}: the credentials or this machine's clock are wrong"
    text = f"AWS refuses {error.operation_name}: {code}: {' '.join(error.response['Error'].get('Message', '').split())}"
    if code in _EXPIRED:
        return f"{text}: the credentials are wrong or have expired; get new ones"
    return f"{text}: docs/aws.md has the policies that are needed" if code in _DENIED else text


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError('boto3 is not installed: pip install "dorylax[aws]"') from None
