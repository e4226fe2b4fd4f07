from __future__ import annotations

import asyncio

import numpy as np
import pytest
from support.transports import LossyTransport, delivered

from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.endpoint import PULL, PUSH
from dorylax.pipeline.parameters.messages import Pulled, Push
from dorylax.pipeline.transport import Address

HOME = Address("graph", 2)
ANSWER = Pulled(7, {"w": np.zeros(2)}, {})


@pytest.mark.parametrize(("interval", "server"), [(0, 0), (2, 2), (3, 0), (7, 1)])
def test_an_interval_has_one_parameter_server_for_all_it_asks(interval: int, server: int) -> None:
    transport = LossyTransport(ANSWER)
    client = ParameterClient(HOME, 3, transport)
    sums = {"w": np.ones(4, np.float32), "loss": np.float64(1)}

    async def scenario() -> None:
        assert await client.pull(interval, 5) is ANSWER
        await delivered(lambda then: client.push(interval, 5, 1, sums, waiting="sender", then=then))

    asyncio.run(scenario())
    there = Address("parameter", server)
    assert transport.asked == [
        (HOME, there, "pull", (interval, 5), 0, (5, PULL, interval)),
        (HOME, there, "push", Push(interval, 5, 1, sums), 24, (5, PUSH, interval, 1)),
    ]
