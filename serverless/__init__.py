"""Tensor tasks: stages of a program that run on workers, and the backends that run them."""
