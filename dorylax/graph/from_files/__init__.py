"""Import of graphs from files of any size through DuckDB. May import `dorylax.graph`, `dorylax.storage`, and what is below."""
