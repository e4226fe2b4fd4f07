"""Control of tensor tasks: concurrency limits, retries, hedged requests, and throttling."""

from dorylax.serverless.controller.autotuner import Autotuner
from dorylax.serverless.controller.call import Call
from dorylax.serverless.controller.controller import Controller
from dorylax.serverless.controller.hedging import Hedging
from dorylax.serverless.controller.slot_limit import SlotLimit
from dorylax.serverless.controller.throttle import Throttle

__all__ = ["Autotuner", "Call", "Controller", "Hedging", "SlotLimit", "Throttle"]
