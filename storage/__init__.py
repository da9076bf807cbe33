"""Storage: immutable files of models and statistics, and the control database. All SQL is here."""
