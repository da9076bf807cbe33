"""From a request to a model."""
