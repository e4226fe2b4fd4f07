"""What goes wrong with AWS before training is one line that says what to do, on the command line and in a sweep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("moto", reason="needs moto")

from support.aws import Cloud, cloud

TINY = {"data.size": "tiny", "model.name": "gcn", "pipeline.intervals": 2, "train.epochs": 1}


@pytest.fixture(scope="module")
def aws() -> Iterator[Cloud]:
    with cloud() as found:
        found.make_function()
        yield found


def train(dorylax, **tensor: object) -> tuple[int, str]:
    """Exit code, and the last line."""
    given = TINY | {f"tensor.{name}": value for name, value in tensor.items()}
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    code, _, err = dorylax("train", "--no-save", *words)
    assert "Traceback" not in err
    return code, err.splitlines()[-1]


ON_AWS = {"backend": "aws", "host": "127.0.0.1", "workers": 2}


def test_no_such_function(dorylax, aws: Cloud) -> None:
    code, line = train(dorylax, **ON_AWS, function="nobody")
    assert code == 1
    assert line.startswith("error: AWS refuses (ResourceNotFoundException: ")
    assert line.endswith("there is no such function in this region: dorylax aws deploy, or set tensor.function")


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        ({"function": "a:b:c"}, "tensor.function must be a name, name:alias or a function's ARN, got 'a:b:c'"),
        ({"artefacts": "bucket/x"}, "tensor.artefacts must be s3://bucket/prefix, got 'bucket/x'"),
        ({"host": "192.0.2.7"}, "tensor.host = 192.0.2.7 must be an address of this machine"),
    ],
)
def test_wrong_settings(dorylax, aws: Cloud, tensor: dict[str, str], text: str) -> None:
    code, line = train(dorylax, **ON_AWS | tensor)
    assert code == 2
    assert line.startswith(f"error: {text}")
