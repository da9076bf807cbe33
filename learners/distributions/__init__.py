"""Whether what a model answers is a distribution."""
