"""The section `tensor`: the error of each wrong value."""

from __future__ import annotations

import pytest

from dorylax.pipeline.config import PipelineConfig
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError


def test_what_is_written_can_be_read_back() -> None:
    config = TensorConfig(backend="local", workers=3, latency=0.02, latency_sigma=0.6, bandwidth=25e6, streaming=True)
    assert TensorConfig(**config.to_dict()) == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "locl"}, r"tensor\.backend must be one of inline, local, .* got 'locl' \(did you mean local\?\)"),
        ({"backend": "local", "transport": "udp"}, "tensor.transport must be one of ipc, tcp, got 'udp'"),
        ({"backend": "local", "workers": 0}, "tensor.workers must be ≥ 1, got 0"),
        ({"backend": "local", "workers": 1.5}, "tensor.workers must be a whole number ≥ 1, got 1.5"),
        ({"slots": True}, "tensor.slots must be a whole number ≥ 1, got true"),
        ({"attempts": 0}, "tensor.attempts must be ≥ 1, got 0"),
        ({"relaunches": -1}, "tensor.relaunches must be ≥ 0, got -1"),
        ({"hedge_quantile": 1}, "tensor.hedge_quantile must be > 0 and ≤ 0.99, got 1"),
        ({"deadline": 0}, "tensor.deadline must be > 0 \\(seconds\\), got 0"),
        ({"deadline": float("nan")}, "tensor.deadline must be finite, got nan"),
        ({"backend": "local", "latency": -1}, "tensor.latency must be ≥ 0 \\(seconds\\), got -1"),
        ({"backend": "local", "latency_sigma": 0.6}, "tensor.latency_sigma = 0.6 spreads tensor.latency, which is 0"),
        ({"backend": "local", "latency": 0.1, "latency_sigma": 4}, "tensor.latency_sigma must be .*3, got 4"),
        ({"backend": "local", "bandwidth": "1G"}, "tensor.bandwidth must be a number > 0 \\(bytes per second\\), got '1G'"),
        ({"autotune": 1}, "tensor.autotune must be true or false, got 1"),
        ({"workers": 2}, "tensor.workers = 2 needs tensor.backend=local or emulator or aws or ray; got inline: change one"),
        ({"backend": "local", "host": "10.0.0.1"}, "tensor.host = 10.0.0.1 needs tensor.backend=aws; got local"),
        ({"backend": "aws", "host": "10.0.0.1", "transport": "tcp"}, "tensor.transport = tcp needs"),
        ({"backend": "aws", "host": "0.0.0.0"}, "tensor.host must be one address, .* got 0.0.0.0"),
        ({"backend": "aws", "host": 7}, "tensor.host must be text, got 7"),
        ({"backend": "aws", "host": "10.0.0.1", "function": ""}, "tensor.function must not be empty"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        TensorConfig(**given)  # type: ignore[arg-type]
    assert caught.value.key.startswith("tensor.")


@pytest.mark.parametrize("backend", ["local", "emulator"])
def test_workers_elsewhere_need_the_real_clock(backend: str) -> None:
    with pytest.raises(ConfigError, match=rf"tensor\.backend = {backend} needs pipeline\.clock=real, got virtual"):
        PipelineConfig(clock="virtual", tensor=TensorConfig(backend=backend))
