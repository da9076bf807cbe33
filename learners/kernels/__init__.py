"""Compiled kernels; only this package imports numba."""
