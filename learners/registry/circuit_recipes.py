"""Recipes of circuits."""

from learners.circuits import recipes
from learners.circuits.parameters import CircuitParameters
from learners.registry.recipes import Recipe

SPN = Recipe("sum-product network", CircuitParameters, recipes.spn, None, needs_target=False)
