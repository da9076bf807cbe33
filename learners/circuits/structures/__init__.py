"""Structures of circuits: where they come from, and how they are written and drawn."""
