"""Backends run tensor tasks. `base.Backend` is the contract."""
