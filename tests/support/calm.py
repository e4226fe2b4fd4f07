"""Clusters on which equal tasks take equally long."""

from __future__ import annotations

from dataclasses import replace

from dorylax.cost import Cluster, Variation


def calm(cluster: Cluster) -> Cluster:
    """Without variation."""
    none = Variation(0.0, 0.0, 1.0)
    server, parameters = (replace(one, variation=none) for one in (cluster.graph_server, cluster.parameter_server))
    function = replace(cluster.function, variation=none)
    return replace(cluster, graph_server=server, parameter_server=parameters, function=function)
