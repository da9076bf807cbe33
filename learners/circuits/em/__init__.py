"""Learning of circuit parameters by expectation maximization."""
