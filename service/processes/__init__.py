"""Processes: serving processes, job workers, and who keeps them alive."""
