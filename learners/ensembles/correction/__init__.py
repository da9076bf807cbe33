"""The boosted trees that correct an ensemble."""
