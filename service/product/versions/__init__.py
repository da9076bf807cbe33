"""Models and their versions."""
