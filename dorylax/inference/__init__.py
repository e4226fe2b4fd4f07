"""Trained models as files that need only JAX and NumPy: written by `artefact`, run by `loader`."""
