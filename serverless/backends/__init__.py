"""Backends: who runs tensor tasks. `base.Backend` is the contract."""
