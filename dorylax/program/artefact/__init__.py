"""Stages as files for other processes: shared functions of equal stages, the file format, and the runtime on workers."""
