"""The model protocol, queries, explanations and parameters common to all models."""
