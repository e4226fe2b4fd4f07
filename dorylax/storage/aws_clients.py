"""boto3's clients, set up to keep secrets out of logs; boto3 is loaded when the first one is made."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import Any

from dorylax.store.aws import AwsError, lasting_problem

_LOUD = ("boto3", "botocore", "urllib3", "s3transfer")


def s3_client(region: str | None = None) -> Any:
    """A client of S3, which repeats what fails for a moment; a region that is None is as boto3 finds it (`region_of`).

    Raises:
        AwsError: boto3 is not installed, or cannot be set up.
    """
    # URLs name the region, in signature and host, with the bucket in the path: S3's global host sends on to it who asks for
    # a new bucket, and cannot be reached from a VPC that has but a gateway; hosts of buckets with dots have no certificate.
    return make_client(
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


def make_client(service: str, region: str | None, *, region_setting: str = "AWS_REGION", **config: Any) -> Any:
    """A client of a service of AWS.

    Args:
        service: as boto3 calls it.
        region: of AWS; None: as boto3 finds it (`region_of`).
        region_setting: where users set one, for errors.
        **config: of botocore's Config.

    Raises:
        AwsError: boto3 is not installed, or cannot be set up: there is no region, say.
    """
    try:
        session, configuration = import_module("boto3.session"), import_module("botocore.config")
    except ImportError as error:
        raise AwsError(f'AWS needs boto3: pip install "dorylax[aws]" ({error})') from None
    _hush()
    try:
        # A session of its own: the default one is shared with whatever else runs here, and is not made for threads.
        return session.Session().client(service, region_name=region_of(region), config=configuration.Config(**config))
    except Exception as error:
        problem = lasting_problem(error, region=region_setting)
        raise problem or AwsError(f"a client of AWS could not be made: {type(error).__name__}") from None


def _hush() -> None:
    """Keeps bodies of requests, which hold a run's keys, out of logs: botocore writes them at the level DEBUG.

    Whoever turns all logging up does not mean that; whoever gives these loggers a level of their own does.
    """
    for name in _LOUD:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
