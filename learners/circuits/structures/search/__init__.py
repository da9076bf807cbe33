"""Search for a structure and for the leaves of its columns."""
