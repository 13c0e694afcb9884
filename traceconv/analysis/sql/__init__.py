"""SQL over captures, by DuckDB: the tables of Perfetto, those of traceconv, and the engine."""
