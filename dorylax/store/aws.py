"""Clients of AWS, set up to keep secrets out of logs, and errors about its setup.

boto3 is loaded with the first client. Errors are recognized by the names of their classes and codes. Their texts are not
passed on: they may quote the request, and a session token is part of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, final

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
_LOUD = ("boto3", "botocore", "urllib3", "s3transfer")
_GET_CREDENTIALS = "get valid credentials (aws configure, aws sso login, or the machine's role), then run again"


@final
class AwsError(DorylaxError, RuntimeError):
    """A request that would fail again. The text says what to do, and holds no secret."""


def lasting_problem(error: Exception, *, region: str = "AWS_REGION") -> AwsError | None:
    """Return an error that says what to set up before any request can succeed; None if the setup is not the problem.

    Args:
        error: Exception of a request, or of making a client.
        region: Name of the setting of the region, for messages.
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
    """Return the names of an exception's class and its base classes, its own first."""
    return [kind.__name__ for kind in type(error).__mro__]


def s3_client(region: str | None = None) -> Any:
    """Make a client of S3 with five attempts per request.

    Args:
        region: Region; None: see `region_of`.

    Raises:
        AwsError: boto3 is not installed, or cannot be set up.
    """
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

    Returns:
        The region; None: as boto3 finds it, in AWS_DEFAULT_REGION (which comes before AWS_REGION here too) or the profile.
    """
    return region or (None if os.environ.get("AWS_DEFAULT_REGION") else os.environ.get("AWS_REGION"))


def make_client(service: str, region: str | None, *, region_setting: str = "AWS_REGION", **config: Any) -> Any:
    """Make a client of a service of AWS.

    Args:
        service: Name of the service in boto3.
        region: Region; None: see `region_of`.
        region_setting: Name of the setting of the region, for messages.
        **config: Arguments of botocore's Config.

    Raises:
        AwsError: boto3 is not installed, or cannot be set up (no region, say).
    """
    try:
        session, configuration = import_module("boto3.session"), import_module("botocore.config")
    except ImportError as error:
        raise AwsError(f'AWS needs boto3: pip install "dorylax[aws]" ({error})') from None
    _hush()
    try:
        # Not the default session, which other code may share and which is not made for threads.
        return session.Session().client(service, region_name=region_of(region), config=configuration.Config(**config))
    except Exception as error:
        problem = lasting_problem(error, region=region_setting)
        raise problem or AwsError(f"a client of AWS could not be made: {type(error).__name__}") from None


def _hush() -> None:
    """Keep bodies of requests, which hold a run's keys, out of logs: botocore logs them at the level DEBUG.

    A level that the user sets on these loggers stays.
    """
    for name in _LOUD:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
