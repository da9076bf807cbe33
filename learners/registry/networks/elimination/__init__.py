"""Exact inference in discrete networks by variable elimination, without a circuit."""
