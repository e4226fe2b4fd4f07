"""Computation of metrics: the contract in `base`, a file for each kind, and all names in `catalogue`."""
