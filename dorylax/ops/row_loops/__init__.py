"""Loops over the entries of some rows, in NumPy arrays: by the native kernels, or by NumPy where these are unavailable."""
