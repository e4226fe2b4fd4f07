"""Models of every kind taken apart: a static structure, and plain trees of arrays."""
