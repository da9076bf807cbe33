"""Recipes of circuits."""

from learners.circuits import recipes
from learners.circuits.bayesian.recipes import gibbs
from learners.circuits.parameters import CircuitParameters, GibbsParameters
from learners.registry.recipes import Recipe

SPN = Recipe("sum-product network", CircuitParameters, recipes.spn, None, needs_target=False, goes_on=True)
GIBBS = Recipe("posterior over circuits", GibbsParameters, gibbs, None, needs_target=False, goes_on=True)
