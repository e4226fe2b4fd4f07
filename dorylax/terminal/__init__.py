"""What all programs here share at the terminal: how they end (`run`, `failures`), and how they print (`output`).

`dorylax.cli` and `dorylax.experiments` both stand on it. It imports no JAX.
"""
