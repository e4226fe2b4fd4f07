"""A program as one function, which a single machine trains with."""
