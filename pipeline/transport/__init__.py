"""How servers talk: a request reaches an address and is answered, whatever carries it."""

from dorylax.pipeline.transport.base import Address, Endpoint, Transport, payload_bytes
from dorylax.pipeline.transport.in_process import InProcessTransport

__all__ = ["Address", "Endpoint", "InProcessTransport", "Transport", "payload_bytes"]
