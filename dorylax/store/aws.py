"""Clients of AWS, set up to keep secrets out of logs, and errors about its setup.

The first client imports boto3. Errors are recognized by the names of their classes and codes. Messages do not include their
texts, which may quote a request with a session token.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dorylax.errors import RunError

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
_PROBLEMS = {
    "NoRegionError": "AWS needs a region: set {region}, or one in the profile (aws configure)",
    "InvalidRegionError": "AWS has no region of this name: change {region}",
    "SSLError": "AWS shows no certificate that this machine trusts: look at its clock, its proxy, AWS_CA_BUNDLE",
}
"""Other lasting problems, by the class of the exception."""
_LOUD = ("boto3", "botocore", "urllib3", "s3transfer")
_GET_CREDENTIALS = "get valid credentials (aws configure, aws sso login, or the machine's role), then run again"


def lasting_problem(error: Exception, *, region: str = "AWS_REGION") -> RunError | None:
    """Return an error that says what to set up before any request can succeed; None if the setup is not the problem.

    Args:
        error: Exception of a request, or of making a client.
        region: Name of the setting of the region, for messages.
    """
    if (code := code_of(error)) is not None:
        refused = f"AWS does not accept the credentials ({code}): {_GET_CREDENTIALS}"
        return RunError(refused) if code in _CREDENTIALS else None
    names = class_names(error)
    if not _NO_CREDENTIALS.isdisjoint(names):
        return RunError(f"AWS needs credentials ({names[0]}): {_GET_CREDENTIALS}")
    problem = next((_PROBLEMS[name] for name in names if name in _PROBLEMS), None)
    return None if problem is None else RunError(problem.format(region=region))


def code_of(error: Exception) -> str | None:
    """Return the code of an error that a service answered; None for other errors."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping) or "Error" not in response:
        return None
    return str(response["Error"].get("Code", "unknown"))


def class_names(error: Exception) -> list[str]:
    """Return the names of an exception's class and its base classes, its own first."""
    return [kind.__name__ for kind in type(error).__mro__]


def s3_client(region: str | None = None) -> Any:
    """Make a client of S3 with five attempts per request; see `make_client`."""
    # URLs name the region, in signature and host, with the bucket in the path: S3's global host redirects requests for a new
    # bucket, and is out of reach from a VPC with only a gateway; hosts of buckets with dots have no certificate.
    return make_client(
        "s3",
        region,
        signature_version="s3v4",
        s3={"addressing_style": "path", "us_east_1_regional_endpoint": "regional"},
        retries={"mode": "standard", "total_max_attempts": 5},
    )


def region_of(region: str | None) -> str | None:
    """Return a region, if given; else AWS_REGION, which boto3 does not read but all other tools of AWS do.

    None stands for boto3's own choice: AWS_DEFAULT_REGION, which precedes AWS_REGION here too, or the profile's region.
    """
    return region or (None if os.environ.get("AWS_DEFAULT_REGION") else os.environ.get("AWS_REGION"))


def make_client(service: str, region: str | None, *, region_setting: str = "AWS_REGION", **config: Any) -> Any:
    """Make a client of a service of AWS, with arguments of botocore's Config.

    Args:
        service: Name of the service in boto3.
        region: Region; None: see `region_of`.
        region_setting: Name of the setting of the region, for messages.
        **config: Arguments of botocore's Config.

    Raises:
        RunError: boto3 cannot be set up (no region, say).
    """
    session, configuration = import_module("boto3.session"), import_module("botocore.config")
    for name in _LOUD:
        # At the level DEBUG, botocore logs the bodies of requests, which hold a run's keys. A level of the user stays.
        if (logger := logging.getLogger(name)).level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    try:
        # Not the default session, which other code may share and which is not made for threads.
        return session.Session().client(service, region_name=region_of(region), config=configuration.Config(**config))
    except Exception as error:
        problem = lasting_problem(error, region=region_setting)
        raise problem or RunError(f"a client of AWS could not be made: {type(error).__name__}") from None
