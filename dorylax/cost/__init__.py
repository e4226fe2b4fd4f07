"""Time and cost of servers and functions: clusters, the virtual clock's time model, the bill (docs/clock.md)."""

from dorylax.cost.bill import Bill, Calls
from dorylax.cost.cluster import DEFAULT_CLUSTER, Cluster, clusters
from dorylax.cost.cluster_file import find_cluster
from dorylax.cost.function import Function
from dorylax.cost.instance import INSTANCES, Gpu, Instance
from dorylax.cost.machines import Machines
from dorylax.cost.measured_speeds import RowsRead
from dorylax.cost.time_model import TimeModel
from dorylax.cost.variation import Variation

__all__ = [
    "DEFAULT_CLUSTER",
    "INSTANCES",
    "Bill",
    "Calls",
    "Cluster",
    "Function",
    "Gpu",
    "Instance",
    "Machines",
    "RowsRead",
    "TimeModel",
    "Variation",
    "clusters",
    "find_cluster",
]
