"""Resources of hosts on a Ray cluster: the request to Ray, and its description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dorylax.ray_cluster.cluster import Node
from dorylax.ray_cluster.config import RayConfig


class Ask(NamedTuple):
    """A resource request to Ray.

    Attributes:
        bundles: Resources of each bundle, which is reserved on one node.
        strategy: Placement strategy of the bundles.
        places: Bundle of each host.
        of_each: Share of a host in its bundle, as actor options.
        text: Description of the request.
    """

    bundles: list[dict[str, float]]
    strategy: str
    places: list[int]
    of_each: dict[str, Any]
    text: str


def asked(config: RayConfig, hosts: int, cores: int) -> Ask:
    """Return the request for hosts with `cores` cores each.

    Consecutive hosts are on different nodes, so that graph servers spread before parameter servers.
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
    """Return the largest number of cores (≥ 1) that every host can have, without checking free resources.

    Args:
        nodes: Nodes of the cluster.
        hosts: Number of hosts.
        hosts_per_node: See `RayConfig`.
        left: CPUs reserved for workers.
    """
    every = [node.cpus for node in nodes]
    for cores in range(max(every, default=1), 1, -1):
        room = sum(min(cpus // cores, hosts_per_node or hosts) for cpus in every)
        if room >= hosts and sum(every) - hosts * cores >= left:
            return cores
    return 1
