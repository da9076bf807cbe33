"""What is watched once a model serves."""
