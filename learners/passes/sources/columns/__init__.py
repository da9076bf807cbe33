"""Columns beside those that a file has: of its folders, and of other files."""
