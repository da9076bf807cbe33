"""Mixtures of Gaussians with full covariances, densities of several numeric columns at once."""
