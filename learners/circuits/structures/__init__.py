"""Structures of circuits: learning, file formats and drawing."""
