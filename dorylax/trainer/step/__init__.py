"""The mathematics of an epoch on one machine: what is minimised, gradients, and the jitted functions around them."""
