"""The mathematics of an epoch on one machine: the objective, gradients, and the jitted functions around them."""
