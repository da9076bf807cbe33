"""Mixtures of Gaussians with full covariances: leaves of several numeric columns at once."""
