"""What each reply and each error of AWS means: an answer, a call to repeat, or a final error."""

from __future__ import annotations

import json
import zlib
from typing import Any

import botocore.session
import pytest
from botocore import exceptions
from botocore.exceptions import ClientError
from botocore.retries import standard
from hypothesis import given
from hypothesis import strategies as st

from dorylax.errors import RunError
from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.aws.replies import answer_of, problem_of
from dorylax.serverless.function.invocation import response

URL = "https://lambda.eu-central-1.amazonaws.com/2015-03-31/functions/dorylax/invocations"
SECRET = "t0p-secret"


def error_of(code: str, status: int = 400, message: str = "Why.") -> ClientError:
    reply: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(reply, "Invoke")


def meaning(error: Exception) -> str:
    found = problem_of(error)
    assert SECRET not in str(found)
    return found.reason if isinstance(found, TaskFailedError) else "fatal"


def function_failed(payload: bytes) -> TaskFailedError | RunError:
    with pytest.raises((TaskFailedError, RunError)) as caught:
        answer_of(payload, "Unhandled")
    return caught.value


# Answers.


@pytest.mark.parametrize("answer", [None, b"", b"{}", b"\x00\xff"])
def test_an_answer(answer: bytes | None) -> None:
    assert answer_of(json.dumps(response(answer)).encode(), None) == answer


@pytest.mark.parametrize("payload", [b"", b"null", b"{}", b"[1", b"Task timed out after 3.00 seconds", b"\xff" * 9])
def test_what_is_no_answer_although_there_was_no_error(payload: bytes) -> None:
    with pytest.raises(TaskFailedError, match="answered with something that is not a response") as caught:
        answer_of(payload, None)
    assert caught.value.reason == "died"


# Errors of the function.


@pytest.mark.parametrize(
    ("kind", "message", "reason", "text"),
    [
        (
            "Sandbox.Timedout",
            "RequestId: 8f5 Error: Task timed out after 3.00 seconds",
            "timeout",
            "after 3.00 seconds",
        ),
        (None, "2026-07-01T00:00:00.000Z 8f5 Task timed out after 900.00 seconds", "timeout", "after 900.00 seconds"),
        ("Runtime.ExitError", "RequestId: 8f5 Error: Runtime exited with error: signal: killed", "died", "memory_mb"),
        ("Runtime.ExitError", "RequestId: 8f5 Error: Runtime exited without providing a reason", "died", "exited"),
        ("Runtime.OutOfMemory", "", "died", "memory_mb"),
        ("MemoryError", "", "died", "memory_mb"),
        ("Extension.Crash", "x", "died", "Extension.Crash: x"),
        ("ZeroDivisionError", "division by zero", "died", "ZeroDivisionError: division by zero"),
        ("Function.ResponseSizeTooLarge", "6291556 bytes", "died", "6291556"),
        ("Runtime.ImportModuleError", "No module named 'jax'", "fatal", "image is broken, dorylax aws deploy"),
        ("Runtime.HandlerNotFound", "x", "fatal", "image is broken"),
        ("Runtime.InvalidEntrypoint", "x", "fatal", "image is broken"),
        ("VersionError", "version 2, expected 1", "fatal", "of another release of dorylax"),
        ("WireError", "x", "fatal", "of another release of dorylax"),
    ],
)
def test_errors_of_the_function(kind: str | None, message: str, reason: str, text: str) -> None:
    document = {"errorMessage": message} | ({} if kind is None else {"errorType": kind, "stackTrace": []})
    found = function_failed(json.dumps(document).encode())
    assert (found.reason if isinstance(found, TaskFailedError) else "fatal") == reason
    assert text in str(found)


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["errorType", "errorMessage"]), inner)
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_a_function_s_error_looks_like_it_is_one(payload: bytes) -> None:
    function_failed(payload)


def test_long_errors_are_cut() -> None:
    found = function_failed(json.dumps({"errorType": "E" * 10_000, "errorMessage": "m" * 100_000}).encode())
    assert len(str(found)) < 1200


# Errors of the service.

CODES = {
    "TooManyRequestsException": (429, "throttled"),
    "EC2ThrottledException": (502, "throttled"),
    "ENILimitReachedException": (502, "throttled"),
    "SubnetIPAddressLimitReachedException": (502, "throttled"),
    "ServiceException": (500, "throttled"),
    "ResourceConflictException": (409, "throttled"),
    "ResourceNotReadyException": (502, "throttled"),
    "ENINotReadyException": (502, "throttled"),
    "EC2UnexpectedException": (502, "throttled"),
    "SnapStartNotReadyException": (409, "throttled"),
    "SnapStartTimeoutException": (408, "throttled"),
    "ResourceNotFoundException": (404, "fatal"),
    "EC2AccessDeniedException": (502, "fatal"),
    "InvalidSecurityGroupIDException": (502, "fatal"),
    "InvalidSubnetIDException": (502, "fatal"),
    "KMSAccessDeniedException": (502, "fatal"),
    "KMSDisabledException": (502, "fatal"),
    "KMSInvalidStateException": (502, "fatal"),
    "KMSNotFoundException": (502, "fatal"),
    "RequestTooLargeException": (413, "fatal"),
    "InvalidParameterValueException": (400, "fatal"),
    "InvalidRequestContentException": (400, "fatal"),
    "UnsupportedMediaTypeException": (415, "fatal"),
    "RecursiveInvocationException": (400, "fatal"),
}


@pytest.mark.parametrize("code", CODES)
def test_errors_of_the_service(code: str) -> None:
    status, expected = CODES[code]
    assert meaning(error_of(code, status)) == expected


def test_every_error_that_the_api_names_means_something() -> None:
    """By botocore's own description of Invoke: none of its errors of this kind of function is left to chance."""
    model = botocore.session.Session().get_service_model("lambda").operation_model("Invoke")
    statuses = {shape.name: shape.metadata["error"]["httpStatusCode"] for shape in model.error_shapes}
    # Of file systems, code artefacts, snapshots and durable executions, which an image function has not.
    others = ("EFS", "S3Files", "CodeArtifact", "SnapStart", "Durable", "Runtime", "Serialized", "NoPublished", "Mode")
    left = {name for name in statuses if not name.startswith(others)}
    assert left - set(CODES) <= {"InvalidRuntimeException", "InvalidZipFileException", "ServiceQuotaExceededException"}
    for code in set(CODES) & set(statuses):
        assert CODES[code][0] == statuses[code], code


def test_what_boto3_would_repeat_is_repeated() -> None:
    """It is the controller that does, and waits: these are no mistakes."""
    transient = standard.TransientRetryableChecker
    codes = [*transient._TRANSIENT_ERROR_CODES, *standard.ThrottledRetryableChecker._THROTTLED_ERROR_CODES]
    # Of DynamoDB alone.
    others = {"ProvisionedThroughputExceededException", "TransactionInProgressException"}
    assert {meaning(error_of(code)) for code in set(codes) - others} == {"throttled"}
    assert {meaning(error_of("Unheard", status)) for status in transient._TRANSIENT_STATUS_CODES} == {"throttled"}


@pytest.mark.parametrize(
    ("status", "expected"), [(429, "throttled"), (500, "throttled"), (503, "throttled"), (400, "fatal"), (0, "fatal")]
)
def test_unknown_codes_go_by_their_status(status: int, expected: str) -> None:
    assert meaning(error_of("Unheard", status, SECRET if expected == "fatal" else "")) == expected


@pytest.mark.parametrize(
    "code",
    ["UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException", "SignatureDoesNotMatch"],
)
def test_credentials_that_are_not_accepted(code: str) -> None:
    """The service's text quotes the request's headers, the session's token among them."""
    found = problem_of(error_of(code, 403, f"The Canonical String should have been 'x-amz-security-token:{SECRET}'"))
    assert isinstance(found, RunError)
    assert str(found).startswith(f"AWS does not accept the credentials ({code}): get valid credentials")


def test_who_may_not_is_told_what_and_where_to_look() -> None:
    found = problem_of(error_of("AccessDeniedException", 403, "not authorized to perform: lambda:InvokeFunction"))
    assert str(found) == (
        "AWS refuses (AccessDeniedException: not authorized to perform: lambda:InvokeFunction): "
        "the policy of whoever trains must allow it (docs/aws.md)"
    )


def test_a_function_that_is_not_there_is_to_be_deployed() -> None:
    assert "dorylax aws deploy" in str(problem_of(error_of("ResourceNotFoundException", 404)))


def test_a_reply_without_anything() -> None:
    assert meaning(ClientError({"Error": {}}, "Invoke")) == "fatal"


# Errors on the way.


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exceptions.ReadTimeoutError(endpoint_url=URL), "timeout"),
        (exceptions.ConnectTimeoutError(endpoint_url=URL), "throttled"),
        (exceptions.EndpointConnectionError(endpoint_url=URL), "throttled"),
        (exceptions.ProxyConnectionError(proxy_url=URL), "throttled"),
        (exceptions.ConnectionClosedError(endpoint_url=URL), "died"),
        (exceptions.ResponseStreamingError(error=SECRET), "died"),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), "died"),
        (exceptions.HTTPClientError(error=SECRET), "died"),
        (exceptions.SSLError(endpoint_url=URL, error="certificate"), "fatal"),
        (exceptions.NoRegionError(), "fatal"),
        (exceptions.InvalidRegionError(region_name="a b"), "fatal"),
        (exceptions.NoCredentialsError(), "fatal"),
        (exceptions.PartialCredentialsError(provider="env", cred_var="x"), "fatal"),
        (exceptions.CredentialRetrievalError(provider="x", error_msg=SECRET), "fatal"),
        (exceptions.TokenRetrievalError(provider="sso", error_msg=SECRET), "fatal"),
        (exceptions.UnauthorizedSSOTokenError(), "fatal"),
        (exceptions.ProfileNotFound(profile="x"), "fatal"),
        (exceptions.ParamValidationError(report=f"Invalid type for parameter Payload, value: {SECRET}"), "fatal"),
        (zlib.error(SECRET), "fatal"),
        (OSError(SECRET), "fatal"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_on_the_way(error: Exception, expected: str) -> None:
    assert meaning(error) == expected


def test_without_credentials_or_region_it_says_what_to_set() -> None:
    assert "aws configure" in str(problem_of(exceptions.NoCredentialsError()))
    assert "tensor.region" in str(problem_of(exceptions.NoRegionError()))
