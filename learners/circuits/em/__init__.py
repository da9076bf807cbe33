"""Parameters of circuits by expectation maximisation."""
