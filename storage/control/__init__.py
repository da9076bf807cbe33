"""The control database, which holds all mutable state."""
