"""A program as one function, for training on a single machine."""
