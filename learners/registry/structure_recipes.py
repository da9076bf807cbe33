"""Recipes of posteriors over structures."""

from learners.orders import order_learning
from learners.orders.parameters import OrderParameters
from learners.registry.recipes import Recipe

ORDERS = Recipe(
    "posterior over structures",
    OrderParameters,
    order_learning.learn_orders,
    1,
    needs_target=False,
    takes_target=False,
    cuts_by=("score", "n_bins", "max_states", "max_values"),
)
