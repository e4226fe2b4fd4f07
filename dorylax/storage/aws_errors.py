"""What AWS and boto3 say that stays so: credentials, a region, a certificate that are missing or wrong.

Pure: errors are known by the names of their classes and codes, without botocore. Their texts are not passed on, since they
may quote what was sent: a session token is part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from dorylax.errors import DorylaxError

_CREDENTIALS = frozenset(
    {
        *("UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "SignatureDoesNotMatch"),
        *("ExpiredTokenException", "ExpiredToken", "MissingAuthenticationToken", "MissingAuthenticationTokenException"),
        *("IncompleteSignature", "IncompleteSignatureException", "InvalidAccessKeyId", "InvalidToken", "OptInRequired"),
        *("RequestExpired", "AuthFailure", "NotAuthorized"),
    }
)
_NO_CREDENTIALS = frozenset(
    {
        *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "NoAuthTokenError"),
        *("TokenRetrievalError", "SSOError", "LoginError", "UnknownCredentialError", "RefreshWithMFAUnsupportedError"),
        *("MetadataRetrievalError", "ProfileNotFound"),
    }
)
_GET_CREDENTIALS = "get valid credentials (aws configure, aws sso login, or the machine's role), then run again"


@final
class AwsError(DorylaxError, RuntimeError):
    """A request that no repetition would help; the text is for the user, says what to do, and holds nothing secret."""


def lasting_problem(error: Exception, *, region: str = "AWS_REGION") -> AwsError | None:
    """What is to be set up before AWS can be asked anything; None where the exception is about something else.

    Args:
        error: what a request, or making a client, has raised.
        region: where users set one.
    """
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and "Error" in response:
        code = str(response["Error"].get("Code", "unknown"))
        if code in _CREDENTIALS:
            return AwsError(f"AWS does not accept the credentials ({code}): {_GET_CREDENTIALS}")
        return None
    names = class_names(error)
    if "NoRegionError" in names:
        return AwsError(f"AWS needs a region: set {region}, or one in the profile (aws configure)")
    if "InvalidRegionError" in names:
        return AwsError(f"AWS has no region of this name: change {region}")
    if not _NO_CREDENTIALS.isdisjoint(names):
        return AwsError(f"AWS needs credentials ({names[0]}): {_GET_CREDENTIALS}")
    if "SSLError" in names:
        return AwsError(
            "AWS shows no certificate that this machine trusts: look at its clock, its proxy, AWS_CA_BUNDLE"
        )
    return None


def class_names(error: Exception) -> list[str]:
    """Of an exception's class and those that it derives from, its own first."""
    return [kind.__name__ for kind in type(error).__mro__]
