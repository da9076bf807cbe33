"""Datasets: files, rules, schema, statistics."""
