"""Messages between servers and workers: events, answers, names of data and framed tensors. Never pickled."""
