"""S1: Petitjean, Buntine, Webb, Zaidi (2018), Accurate parameter estimation for Bayesian network classifiers."""
