"""How hosts share the nodes of a Ray cluster: what is asked of Ray for them, and how it is put into words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dorylax.ray_cluster.config import RayConfig
from dorylax.ray_cluster.nodes import Node


class Ask(NamedTuple):
    """What is asked of Ray.

    Attributes:
        bundles: what is reserved together on one node each.
        strategy: of their placement.
        places: the bundle of each host.
        of_each: what a host takes of its bundle, as options of an actor.
        text: all of it in words.
    """

    bundles: list[dict[str, float]]
    strategy: str
    places: list[int]
    of_each: dict[str, Any]
    text: str


def asked(config: RayConfig, hosts: int, cores: int) -> Ask:
    """What is asked for so many hosts with so many cores each.

    Hosts that follow each other lie on different nodes, so that graph servers are spread before parameter servers.
    """
    one: dict[str, float] = {"CPU": cores}
    options: dict[str, Any] = {"num_cpus": cores}
    words = [f"{cores} CPU{'s' * (cores > 1)}"]
    if config.memory is not None:
        one["memory"] = options["memory"] = config.memory
        words.append(f"{config.memory / 2**30:.1f} GiB of memory")
    if config.resource is not None:
        one[config.resource] = 1
        options["resources"] = {config.resource: 1}
        words.append(f"1 {config.resource}")
    count = hosts if config.hosts_per_node is None else -(-hosts // config.hosts_per_node)
    places = [host % count for host in range(hosts)]
    bundles = [{name: value * places.count(place) for name, value in one.items()} for place in range(count)]
    text = f"each needs {' and '.join(words)}"
    if config.hosts_per_node is None:
        return Ask(bundles, "SPREAD", places, options, text)
    return Ask(bundles, "STRICT_SPREAD", places, options, f"{text}, on {count} nodes (ray.hosts_per_node)")


def cores_of_each(nodes: Sequence[Node], hosts: int, hosts_per_node: int | None, *, left: float) -> int:
    """The most cores that every host can have, ≥ 1, whether or not there is room for them.

    Args:
        nodes: of the cluster.
        hosts: how many.
        hosts_per_node: as of `RayConfig`.
        left: CPUs that are to be left for workers.
    """
    every = [node.cpus for node in nodes]
    for cores in range(max(every, default=1), 1, -1):
        room = sum(min(cpus // cores, hosts_per_node or hosts) for cpus in every)
        if room >= hosts and sum(every) - hosts * cores >= left:
            return cores
    return 1
