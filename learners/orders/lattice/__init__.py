"""Lattice of subsets: sums over orders, exact or by sampling."""
