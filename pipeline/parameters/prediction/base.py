"""The contract of predictions."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dorylax.pipeline.parameters.messages import ServerState, Tree, Update


@runtime_checkable
class Prediction(Protocol):
    """Says what the weights will be some updates from now. Pure."""

    def remembered(self, last: ServerState, update: Update) -> Tree:
        """What has to be known of an update to predict from the version that it leads to.

        Args:
            last: the version before the update.
            update: as it is applied.

        Returns:
            A pytree of arrays; None where nothing has to be.
        """
        ...

    def like(self, params: Tree) -> Tree:
        """A pytree of the structure that `remembered` gives, for what is restored."""
        ...

    def predict(self, newest: ServerState, ahead: int) -> Tree:
        """The parameters to be expected.

        Args:
            newest: a version whose `remembered` is not None.
            ahead: how many updates later, ≥ 1.
        """
        ...
