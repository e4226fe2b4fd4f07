"""Computation of metrics: all of them by name in `catalogue`, their sums over rows in `evaluation`."""
