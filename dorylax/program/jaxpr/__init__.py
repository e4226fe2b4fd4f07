"""Flat jaxprs of symbolic sizes: reading, writing, simplifying and counting them, independent of models and tasks."""
