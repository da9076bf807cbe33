"""Files that appear whole or not at all, DuckDB files, and where they lie."""
