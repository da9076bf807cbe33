"""Log values and derivatives of circuits: kernels, densities of leaves, bounds."""
