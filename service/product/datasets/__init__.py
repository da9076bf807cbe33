"""Data sets: files, rules, schema, statistics."""
