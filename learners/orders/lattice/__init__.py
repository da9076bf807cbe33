"""The lattice of subsets: sums over orders, exact or by sampling."""
