"""The schema that follows from what columns hold."""
