"""The control plane between servers and workers: events, answers, and names of data. Never pickled."""
