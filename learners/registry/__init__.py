"""Every learner and model kind by name."""
