"""How metrics are computed: the contract in `base`, a file for each kind, and all by name in `catalogue`."""
