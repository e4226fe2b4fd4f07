"""The client of Lambda, set up not to repeat requests, and to wait for long calls."""

from __future__ import annotations

from typing import Any

from dorylax.store.aws import make_client

REGION_SETTING = "tensor.region or AWS_REGION"
"""Where users set the region of functions."""

_CONNECT_SECONDS = 10.0
_MARGIN_SECONDS = 60.0
"""Beyond a call's time: to start a sandbox, which no deadline counts, and for the network."""


def lambda_client(region: str | None, *, calls: int, seconds: float) -> Any:
    """A client of Lambda that never repeats a request: the controller does that.

    Args:
        region: of the function; None: as boto3 finds it (`dorylax.store.aws.region_of`).
        calls: at a time.
        seconds: that a call may take.

    Raises:
        RunError: boto3 is not installed, or there is no region.
    """
    return make_client(
        "lambda",
        region,
        region_setting=REGION_SETTING,
        retries={"total_max_attempts": 1},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=seconds + _MARGIN_SECONDS,
        max_pool_connections=calls,
        tcp_keepalive=True,
    )
