"""A program in one process: as one function, which a single machine trains with, and task by task."""
