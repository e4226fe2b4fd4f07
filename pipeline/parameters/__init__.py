"""Parameter servers: weight gradients in, weight versions out (docs: architecture, "Pipeline")."""

from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.parameters.records import Applied, Pulled, ServerState

__all__ = ["Applied", "ParameterClient", "ParameterServers", "Pulled", "ServerState"]
