"""Shared parts of the programs at the terminal: their end (`run`, `failures`), options and files, and printing (`output`).

`dorylax.cli` and `dorylax.experiments` use it. It imports no JAX.
"""
