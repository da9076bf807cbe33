"""A pool as look-up tables, and the intervals of its answers."""
