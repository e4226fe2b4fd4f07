"""From an ordinary model to its step: one flat jaxpr of loss and gradients, and what its inputs and outputs mean."""
