"""Circuits learned from a stream, row by row, and merged from shards."""
