"""The handler: processes an event in a sandbox of any backend. It needs JAX, NumPy and pyzmq, and no user code."""
