"""Parameter servers: weight gradients in, weight versions out (docs: architecture, "Pipeline")."""

from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.parameters.messages import Applied, Complete, Pulled, ServerState

__all__ = ["Applied", "Complete", "ParameterClient", "ParameterServers", "Pulled", "ServerState"]
