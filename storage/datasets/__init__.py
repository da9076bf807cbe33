"""Data sets, their statistics, and rules of forgotten rows."""
