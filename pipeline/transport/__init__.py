"""How servers talk: a request reaches an address and is answered, whatever carries it."""

from dorylax.pipeline.transport.base import Address, RequestHandler, Then, Transport, Waiting, payload_bytes
from dorylax.pipeline.transport.in_process import InProcessTransport

__all__ = ["Address", "InProcessTransport", "RequestHandler", "Then", "Transport", "Waiting", "payload_bytes"]
