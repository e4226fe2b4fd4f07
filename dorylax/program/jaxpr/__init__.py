"""Flat jaxprs of symbolic sizes: read, written, made smaller, counted. Knows neither models nor tasks."""
