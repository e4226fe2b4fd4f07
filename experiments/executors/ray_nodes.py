"""The nodes of a cluster, as sweeps see them: which there are, and whether they can run the runs."""

from __future__ import annotations

from typing import Any

from dorylax.experiments.executors.ray_worker import NodeError, Surroundings, look_around
from dorylax.settings.errors import ConfigError
from dorylax.terminal.output import print_error

LOOK_SECONDS = 60.0
"""For a node to answer what takes no time."""


def cpus_of_nodes(ray: Any) -> dict[str, float]:
    """CPUs of each node that the cluster counts among its own, by Ray's id of it."""
    return {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]}


def pinned(node: str) -> Any:
    """The strategy of what is for one node and no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def check_nodes(ray: Any, surroundings: Surroundings) -> None:
    """Has each node with CPUs look around; there is a warning about one that is lost meanwhile.

    Raises:
        ConfigError: a node is not set up for the sweep, or does not answer.
    """
    look = ray.remote(num_cpus=0, max_retries=0)(look_around)
    names = {node["NodeID"]: node_name(node["NodeManagerHostname"], node["NodeID"]) for node in ray.nodes()}
    looks = {
        look.options(scheduling_strategy=pinned(node)).remote(surroundings): names[node]
        for node, cpus in cpus_of_nodes(ray).items()
        if cpus
    }
    done, late = ray.wait(list(looks), num_returns=len(looks), timeout=LOOK_SECONDS)
    for one in done:
        try:
            ray.get(one)
        except ray.exceptions.RayTaskError as error:
            said = one_line(error.cause)
            if not isinstance(error.cause, NodeError):  # which names its node
                said = f"{looks[one]} cannot run dorylax: {said}"
            raise ConfigError(said) from None
        except ray.exceptions.RayError:
            print_error(f"warning: {looks[one]} was lost")
    if late:
        raise ConfigError(f"{looks[late[0]]} does not answer within {LOOK_SECONDS:g} s: take it out of the cluster")


def node_name(host: str, node: str) -> str:
    """For people: several nodes may be on one host."""
    return f"node {host} ({node[:8]})"


def one_line(error: object) -> str:
    """What an error says, or at least what it is."""
    return " ".join(str(error).split()) or type(error).__name__
