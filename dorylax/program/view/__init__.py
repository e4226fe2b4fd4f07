"""A program as people look at it: what it costs, as a table, as plain values, as a drawing."""
