"""The handler: what a sandbox does with an event, on whatever backend. Needs JAX, NumPy and pyzmq, and no code of users."""
