"""Graphs of other libraries, a file for each. `base` has what they share."""
