"""The cluster launcher's file for AWS: what Ray's own schema and checks say of it, and what dorylax needs; no network."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

util = pytest.importorskip("ray.autoscaler._private.util")

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "deploy" / "ray-aws.yaml").read_text()
CONFIG: dict[str, Any] = yaml.safe_load(TEXT)
TYPES: dict[str, Any] = CONFIG["available_node_types"]
COMMANDS = ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands")


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """With the launcher's defaults for AWS, as `ray up` has it before it asks AWS for anything."""
    filled: dict[str, Any] = util.prepare_config(copy.deepcopy(config))
    util.validate_config(filled)
    return filled


def test_ray_takes_it() -> None:
    filled = checked(CONFIG)
    assert set(filled["available_node_types"]) == {"head", "server"}  # none of the launcher's defaults beside them
    for name in COMMANDS:
        assert set(CONFIG[name]) <= set(filled[name])
    assert not any("ray-wheels" in command for name in COMMANDS for command in filled[name])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda config: config.update(setup_comands=[]), "setup_comands"),
        (lambda config: config.update(max_workers=3), "max_workers"),
        (lambda config: config.update(head_node_type="haed"), "head_node_type"),
        (lambda config: config["available_node_types"]["server"].update(min_worker=4), "min_worker"),
        (lambda config: config["provider"].update(region=7), "7 is not of type 'string'"),
    ],
)
def test_ray_would_say_what_is_wrong(damage: Callable[[dict[str, Any]], None], message: str) -> None:
    config = copy.deepcopy(CONFIG)
    damage(config)
    with pytest.raises(Exception, match=message):
        checked(config)


def test_servers_are_on_nodes_of_their_own_and_the_head_has_none() -> None:
    assert TYPES["head"]["resources"] == {"CPU": 0}
    assert TYPES["server"]["min_workers"] == TYPES["server"]["max_workers"] == CONFIG["max_workers"] == 4
    assert TYPES["server"]["resources"] == {"graph": 1}


def test_all_are_in_one_zone_of_one_network_with_a_profile_and_no_secret() -> None:
    assert "," not in CONFIG["provider"]["availability_zone"]
    assert CONFIG["provider"]["availability_zone"].startswith(CONFIG["provider"]["region"])
    head, server = (TYPES[name]["node_config"] for name in ("head", "server"))
    for key in ("ImageId", "SubnetIds", "SecurityGroupIds"):
        assert head[key] == server[key]
    assert head["IamInstanceProfile"] != server["IamInstanceProfile"]
    assert head["MetadataOptions"] == server["MetadataOptions"] == {"HttpTokens": "required"}
    assert not re.search(r"AKIA|aws_(secret_)?access_key|password|token:", TEXT, re.IGNORECASE)
    assert not re.search(r"\d{12}(?<!0{12}):|(ami|sg|subnet)-(?!0{17}\b)[0-9a-f]+", TEXT)  # nobody's own


def test_nodes_install_this_project_and_know_their_region() -> None:
    ((there, here),) = CONFIG["file_mounts"].items()
    assert (there, here) == ("~/dorylax", ".")
    (install,) = [command for command in CONFIG["setup_commands"] if "pip install" in command]
    assert '"$HOME/dorylax[ray,aws]"' in install
    assert (ROOT / "constraints.txt").is_file()
    region = f"AWS_DEFAULT_REGION={CONFIG['provider']['region']}"
    starts = [CONFIG[f"{kind}_start_ray_commands"][-1] for kind in ("head", "worker")]
    assert all(region in command for command in starts)
    assert sum(region in command for command in CONFIG["setup_commands"]) == 1
    assert "--head" in starts[0]
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in starts[0]  # without it no node is started
    assert "--address=$RAY_HEAD_IP:6379" in starts[1]
