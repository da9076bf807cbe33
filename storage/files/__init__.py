"""Atomic files, DuckDB files, and the layout of a workspace."""
