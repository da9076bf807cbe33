"""Which version serves."""
