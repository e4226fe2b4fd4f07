"""A process that simulates what it is given."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from dorylax import spawning


def serve(connection: Connection[Any, Any], parent: int) -> None:
    """Answers every task with its outcome or its error, until its parent ends it.

    Args:
        connection: to the parent.
        parent: the parent's id.
    """
    spawning.serve(parent)
    from dorylax.program.jaxpr.errors import SplitError
    from dorylax.simulation.inputs import Inputs

    inputs = Inputs()
    while True:
        task = connection.recv()
        try:
            found = task.outcome(inputs)
        except SplitError as error:
            found = SplitError(str(error))  # of what it says of the model's equations, only the text can be sent
        except Exception as error:
            found = error
        connection.send(found)
