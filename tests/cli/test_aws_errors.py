"""What goes wrong with AWS before training is one line that says what to do, on the command line and in a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("moto", reason="needs moto")

from support.aws import Cloud, cloud
from support.rie import Reply

from dorylax.config import RunConfig
from dorylax.experiments.runner import DataCache, run_one
from dorylax.experiments.sweep import Run

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


def test_no_sandbox(dorylax, aws: Cloud) -> None:
    aws.answer = lambda _: Reply(b'{"errorType": "Runtime.ExitError", "errorMessage": "x"}', "Unhandled")
    assert train(dorylax, **ON_AWS, function=aws.function) == (
        1,
        f"error: of 2 sandboxes of the function {aws.function} none could be started: the function's sandbox failed "
        "(Runtime.ExitError: x); it may need more memory: dorylax aws deploy with a larger memory_mb",
    )


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


def test_an_emulator_that_does_not_start(dorylax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("awslambdaric", reason="needs awslambdaric")
    program = tmp_path / "emulator"
    program.write_text("#!/bin/sh\necho one\necho two\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("DORYLAX_RIE", str(program))
    code, line = train(dorylax, backend="emulator", workers=1)
    assert code == 1
    assert line.startswith("error: an emulated sandbox cannot start: ")


def test_a_run_of_a_sweep(aws: Cloud, tmp_path: Path) -> None:
    given = TINY | {f"tensor.{name}": value for name, value in ON_AWS.items()} | {"tensor.function": "nobody"}
    nobody = SimpleNamespace(started=lambda *_: None, epoch=lambda _: None, finished=lambda _: None)
    outcome = run_one(Run(RunConfig.resolve(given), {}), tmp_path, nobody, DataCache())
    assert outcome.status == "failed"
    assert "there is no such function in this region: dorylax aws deploy" in (outcome.error or "")
