"""Tracing: turns an ordinary model into its step, one flat jaxpr of loss and gradients with described inputs and outputs."""
