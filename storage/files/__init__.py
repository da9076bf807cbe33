"""Immutable files, their layout and checksums."""
