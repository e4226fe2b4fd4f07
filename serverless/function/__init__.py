"""The handler as a function of a cloud: its entry point, and what it is invoked with."""
