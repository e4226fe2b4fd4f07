"""Trained models as files that run where only JAX and NumPy are: written by `artefact`, run by `loader`."""
