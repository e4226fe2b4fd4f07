"""boto3's clients, set up not to repeat requests, to wait for long calls, and to keep secrets out of logs."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import Any

from dorylax.serverless.backends.aws.errors import AwsError
from dorylax.serverless.backends.aws.replies import problem_of

_CONNECT_SECONDS = 10.0
_MARGIN_SECONDS = 60.0
"""Beyond a call's time: to start a sandbox, which no deadline counts, and for the network."""

_LOUD = ("boto3", "botocore", "urllib3", "s3transfer")


def lambda_client(region: str | None, *, calls: int, seconds: float) -> Any:
    """A client of Lambda that never repeats a request: the controller does that.

    Args:
        region: of the function; None: as boto3 finds it (`region_of`).
        calls: at a time.
        seconds: that a call may take.

    Raises:
        AwsError: boto3 is not installed, or there is no region.
    """
    return _client(
        "lambda",
        region,
        retries={"total_max_attempts": 1},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=seconds + _MARGIN_SECONDS,
        max_pool_connections=calls,
        tcp_keepalive=True,
    )


def s3_client(region: str | None) -> Any:
    """A client of S3; a region that is None is as boto3 finds it (`region_of`).

    Raises:
        AwsError: boto3 is not installed, or there is no region.
    """
    # URLs name the region, in signature and host, with the bucket in the path: S3's global host sends on to it who asks for
    # a new bucket, and cannot be reached from a VPC that has but a gateway; hosts of buckets with dots have no certificate.
    return _client(
        "s3",
        region,
        signature_version="s3v4",
        s3={"addressing_style": "path", "us_east_1_regional_endpoint": "regional"},
        retries={"mode": "standard", "total_max_attempts": 5},
    )


def region_of(region: str | None) -> str | None:
    """A region, if there is one; else AWS_REGION, which boto3 does not read but all else of AWS does.

    None: as boto3 finds it, which looks at AWS_DEFAULT_REGION and then at the profile; the first comes first here too.
    """
    return region or (None if os.environ.get("AWS_DEFAULT_REGION") else os.environ.get("AWS_REGION"))


def _client(service: str, region: str | None, **config: Any) -> Any:
    try:
        session, configuration = import_module("boto3.session"), import_module("botocore.config")
    except ImportError as error:
        raise AwsError(f'tensor.backend=aws needs boto3: pip install "dorylax[aws]" ({error})') from None
    _hush()
    try:
        # A session of its own: the default one is shared with whatever else runs here, and is not made for threads.
        return session.Session().client(service, region_name=region_of(region), config=configuration.Config(**config))
    except Exception as error:
        raise problem_of(error) from None


def _hush() -> None:
    """Keeps bodies of requests, which hold a run's keys, out of logs: botocore writes them at the level DEBUG.

    Whoever turns all logging up does not mean that; whoever gives these loggers a level of their own does.
    """
    for name in _LOUD:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
