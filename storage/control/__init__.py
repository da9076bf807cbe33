"""The control database: what changes."""
