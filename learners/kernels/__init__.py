"""Compiled loops: what imports numba, and only here."""
