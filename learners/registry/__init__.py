"""Every learner and every kind of model by its name."""
