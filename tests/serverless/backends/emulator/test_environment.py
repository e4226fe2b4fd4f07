from __future__ import annotations

import pytest

from dorylax.serverless.backends.emulator.environment import function_environment


def test_a_function_has_nothing_of_the_parent_s_in_aws() -> None:
    parent = {
        "HOME": "/nowhere",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        "_LAMBDA_TELEMETRY_LOG_FD": "3",
        "LAMBDA_TASK_ROOT": "/var/task",
    }
    found = function_environment(parent, 2, 3.0)
    assert found["HOME"] == "/nowhere"
    assert found["PJRT_NPROC"] == "2"
    assert {name for name in found if "AWS" in name or "LAMBDA" in name} == {"AWS_LAMBDA_FUNCTION_TIMEOUT"}


@pytest.mark.parametrize(("seconds", "whole"), [(0.1, "1"), (3.0, "3"), (3.2, "4"), (900.0, "900")])
def test_time_outs_are_whole_seconds_and_never_shorter(seconds: float, whole: str) -> None:
    assert function_environment({}, 1, seconds)["AWS_LAMBDA_FUNCTION_TIMEOUT"] == whole
