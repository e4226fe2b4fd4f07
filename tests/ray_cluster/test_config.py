"""The section `ray`: in Python, in YAML and on the command line, the error of each wrong value, and no identity."""

from __future__ import annotations

import pytest

from dorylax.config import RunConfig
from dorylax.pipeline.config import PipelineConfig
from dorylax.ray_cluster.config import RayConfig
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError
from dorylax.trainer.from_config import free_settings

SETTINGS = {"ray.address": "10.0.0.1:6379", "ray.hosts_per_node": 2, "ray.cpus": 3}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"address": "10.0.0.1"}, r"ray\.address must be HOST:PORT of the cluster's head, or local, got '10\.0\.0\.1'"),
        ({"address": "ray://10.0.0.1:10001"}, r"ray\.address must be HOST:PORT"),
        ({"address": ":6379"}, r"ray\.address must be HOST:PORT"),
        ({"hosts_per_node": 0}, "ray.hosts_per_node must be ≥ 1, got 0"),
        ({"cpus": 0.5}, "ray.cpus must be a whole number ≥ 1, got 0.5"),
        ({"memory": 0}, "ray.memory must be ≥ 1"),
        ({"worker_cpus": -1}, "ray.worker_cpus must be ≥ 0, got -1"),
        ({"timeout": 0}, "ray.timeout must be > 0"),
        ({"adress": "local"}, "unknown key 'ray.adress'"),
    ],
)
def test_a_wrong_value_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RayConfig(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"ray": RayConfig(address="local")},
            "ray.address = local needs pipeline.hosts=ray or tensor.backend=ray, got inline and inline",
        ),
        ({"hosts": "processes", "ray": RayConfig(cpus=2)}, "ray.cpus = 2 needs pipeline.hosts=ray, got processes"),
        (
            {"tensor": TensorConfig(backend="ray"), "ray": RayConfig(hosts_per_node=2)},
            "ray.hosts_per_node = 2 needs pipeline.hosts=ray, got inline",
        ),
        (
            {"hosts": "ray", "ray": RayConfig(worker_cpus=2)},
            "ray.worker_cpus = 2.0 needs tensor.backend=ray, got inline",
        ),
        ({"hosts": "ray", "clock": "virtual"}, "pipeline.hosts = ray needs pipeline.clock=real, got virtual"),
    ],
)
def test_what_nothing_on_ray_would_use_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PipelineConfig(**options)


def test_it_is_a_section_of_a_run_s_configuration() -> None:
    config = RunConfig.resolve({"pipeline.hosts": "ray"}, SETTINGS)
    assert config.pipeline == PipelineConfig(
        hosts="ray", ray=RayConfig(address="10.0.0.1:6379", hosts_per_node=2, cpus=3)
    )
    assert config.ray == config.pipeline.ray
    assert RunConfig.from_yaml(config.to_yaml()) == config
    assert config.pipeline.dotted().items() >= SETTINGS.items()


def test_workers_alone_have_it_too() -> None:
    config = RunConfig.resolve({"tensor.backend": "ray", "ray.worker_cpus": 2, "ray.address": "10.0.0.1:6379"})
    assert config.ray == RayConfig(address="10.0.0.1:6379", worker_cpus=2)
    assert config.pipeline.hosts == "inline"
    assert RunConfig.from_yaml(config.to_yaml()) == config
    assert free_settings(config.pipeline) >= {"ray.worker_cpus"}


def test_runs_elsewhere_do_not_speak_of_it() -> None:
    config = RunConfig.resolve({"pipeline.servers": 2})
    assert config.ray is None
    assert "ray" not in config.to_dict()
    assert not [key for key in config.pipeline.dotted() if key.startswith("ray.")]
    assert RunConfig.resolve({"ray.address": None}).pipeline is None
    with pytest.raises(ConfigError, match=r"ray\.address = local needs pipeline\.hosts=ray"):
        RunConfig.resolve({"ray.address": "local"})


def test_where_a_run_is_does_not_change_which_run_it_is() -> None:
    bare = RunConfig.resolve({"pipeline.hosts": "ray"})
    other = RunConfig.resolve({"pipeline.hosts": "ray"}, SETTINGS)
    assert other.key() == bare.key()
    assert free_settings(bare.pipeline) >= SETTINGS.keys()
