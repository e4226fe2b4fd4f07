"""Stages as files for other processes: what equal stages share, how they are written, how a worker runs them."""
