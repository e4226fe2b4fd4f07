"""Import of graphs from files of any size, by DuckDB. Imports `dorylax.graph`, `dorylax.store`, and rooms below."""
