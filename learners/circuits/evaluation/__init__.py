"""Evaluation of circuits: kernels, log values, derivatives, leaf densities and bounds."""
