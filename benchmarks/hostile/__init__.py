"""Families of faults that `faults.py` tries: each is a file with what `base` describes."""
