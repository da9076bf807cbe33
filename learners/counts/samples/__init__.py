"""Rows drawn during a pass."""
