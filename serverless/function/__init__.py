"""The handler as a cloud function: its entry point and the format of invocations."""
