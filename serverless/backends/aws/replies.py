"""Classification of Lambda invocations: a response, a retryable error, or a permanent error.

Temporary AWS failures count as throttling, because a pause helps, as in boto3's retries. A run therefore survives an outage
of a minute.

The functions are pure and identify errors by class names and codes, without botocore. Error texts from AWS are passed on
only if they cannot contain request data: texts about signatures quote the headers, including a session token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dorylax.errors import RunError
from dorylax.net.errors import FailureReason, TaskFailedError, WireError
from dorylax.serverless.backends.aws.clients import REGION_SETTING
from dorylax.serverless.function.invocation import read_response
from dorylax.store.aws import class_names, lasting_problem

_SHOWN = 500  # maximum characters of AWS's text in an error
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500

_DEPLOY = "dorylax aws deploy"
_POLICY = "the policy of whoever trains must allow it (docs/aws.md)"
_MORE_MEMORY = "it may need more memory: dorylax aws deploy with a larger memory_mb"

# Values of `errorType` in the function's response.
_BROKEN = (
    *("Runtime.ImportModuleError", "Runtime.HandlerNotFound", "Runtime.MalformedHandlerName"),
    *(
        "Runtime.InvalidEntrypoint",
        "Runtime.InvalidWorkingDir",
        "Runtime.BadFunctionCode",
        "Runtime.UserCodeSyntaxError",
    ),
)
_OTHER_RELEASE = ("VersionError", "WireError")

# Error codes of the Invoke operation (AWS Lambda, API reference).
_THROTTLED = frozenset(
    {
        *(
            "TooManyRequestsException",
            "ThrottlingException",
            "Throttling",
            "ThrottledException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "LimitExceededException",
            "BandwidthLimitExceeded",
            "SlowDown",
        ),
        # Shortage of VPC addresses, which fewer sandboxes relieve.
        *("EC2ThrottledException", "ENILimitReachedException", "SubnetIPAddressLimitReachedException"),
    }
)
_NOT_NOW = frozenset(
    {
        *("ResourceConflictException", "ResourceNotReadyException", "ENINotReadyException", "EC2UnexpectedException"),
        *("SnapStartNotReadyException", "SnapStartTimeoutException"),
        *("RequestTimeout", "RequestTimeoutException", "PriorRequestNotComplete"),
    }
)
_ADVICE = {
    "ResourceNotFoundException": f"there is no such function in this region: {_DEPLOY}, or set tensor.function",
    "AccessDeniedException": _POLICY,
    "AccessDenied": _POLICY,
    "RequestTooLargeException": "an invocation was larger than AWS takes: dorylax should not have sent it, report that",
    "EC2AccessDeniedException": f"the function's role may not use its VPC: {_DEPLOY} makes one that may",
    "InvalidSecurityGroupIDException": f"the function's security group is gone: {_DEPLOY}",
    "InvalidSubnetIDException": f"the function's subnet is gone: {_DEPLOY}",
    "KMSAccessDeniedException": "the function's role may not use the key that encrypts its settings",
    "KMSDisabledException": "the key that encrypts the function's settings is disabled",
    "KMSInvalidStateException": "the key that encrypts the function's settings cannot be used",
    "KMSNotFoundException": "the key that encrypts the function's settings is gone",
}
# Classes of botocore's connection errors. The first match counts.
_CONNECTION: tuple[tuple[str, FailureReason, str], ...] = (
    ("ReadTimeoutError", "timeout", "the function has not answered in time"),
    ("ConnectTimeoutError", "throttled", "AWS could not be reached in time"),
    ("EndpointConnectionError", "throttled", "AWS cannot be reached: is there a network, and is the region right?"),
    ("ProxyConnectionError", "throttled", "the proxy cannot be reached"),
    ("ConnectionClosedError", "died", "the connection was closed before the answer"),
    ("ResponseStreamingError", "died", "the connection broke in the middle of the answer"),
    ("IncompleteReadError", "died", "the connection ended in the middle of the answer"),
    ("HTTPClientError", "died", "the connection broke"),
)


def answer_of(payload: bytes, function_error: str | None) -> bytes | None:
    """Extract the encoded `Answer` from a response to Invoke. Returns None after a warm-up without an event.

    Args:
        payload: Body of the response.
        function_error: Value of the header X-Amz-Function-Error, or None.

    Raises:
        TaskFailedError: If the sandbox died or exceeded its time limit.
        RunError: If the function cannot start or has another version of dorylax.
    """
    if function_error is not None:
        raise _of_function(payload)
    try:
        return read_response(payload)
    except WireError as error:
        raise TaskFailedError(f"the function answered with something that is not a response: {error}", "died") from None


def problem_of(error: Exception) -> TaskFailedError | RunError:
    """Translate an exception of a request to AWS."""
    if (lasting := lasting_problem(error, region=REGION_SETTING)) is not None:
        return lasting
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and "Error" in response:
        return _of_service(response)
    names = class_names(error)
    for name, reason, text in _CONNECTION:
        if name in names:
            return TaskFailedError(text, reason)
    # Omit the text, which may quote the request (as in ParamValidationError).
    return RunError(f"a request to AWS could not be made: {names[0]}")


def _of_function(payload: bytes) -> TaskFailedError | RunError:
    kind, text = _function_error(payload)
    if kind == "Sandbox.Timedout" or "Task timed out after" in text:
        return TaskFailedError(f"AWS ended the function's sandbox: {text}", "timeout")
    if kind in _BROKEN:
        return RunError(f"the function cannot start ({kind}: {text}): its image is broken, {_DEPLOY}")
    if kind in _OTHER_RELEASE:
        return RunError(f"the function is of another release of dorylax ({kind}: {text}): {_DEPLOY}")
    hint = f"; {_MORE_MEMORY}" if kind in ("Runtime.ExitError", "Runtime.OutOfMemory", "MemoryError") else ""
    return TaskFailedError(f"the function's sandbox failed ({kind}: {text}){hint}", "died")


def _function_error(payload: bytes) -> tuple[str, str]:
    """Parse the type and message of a function's error. Accepts malformed payloads."""
    try:
        document: Any = json.loads(payload)
    except (ValueError, RecursionError):
        document = payload.decode("utf-8", "replace")
    if not isinstance(document, dict):
        return "unknown", str(document)[:_SHOWN]
    return str(document.get("errorType", "unknown"))[:_SHOWN], str(document.get("errorMessage", ""))[:_SHOWN]


def _of_service(response: Mapping[str, Any]) -> TaskFailedError | RunError:
    code = str(response["Error"].get("Code", "unknown"))
    text = str(response["Error"].get("Message", ""))[:_SHOWN]
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _ADVICE:
        return RunError(f"AWS refuses ({code}: {text}): {_ADVICE[code]}")
    if code in _THROTTLED or status == _TOO_MANY_REQUESTS:
        return TaskFailedError(f"AWS throttles ({code}: {text})", "throttled")
    if code in _NOT_NOW or status >= _SERVER_ERROR:
        return TaskFailedError(f"AWS cannot invoke the function now ({code}: {text})", "throttled")
    return RunError(f"AWS refuses ({code}, HTTP status {status}): no repetition would help")
