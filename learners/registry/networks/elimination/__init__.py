"""Exact answers of discrete networks by summing out variables, without a circuit."""
