"""Discrete networks by their definition: random ones, and the probability of every world."""

import itertools
import math

import numpy as np

from learners.orders.formats.network_tables import Network


def random_network(seed, d=5):
    """A random acyclic network of d variables of one to three values, with zeros; some have no parents."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    values = {f"x{v}": tuple("abc"[: int(rng.integers(1, 4))]) for v in range(d)}
    parents, tables = {}, {}
    for place, v in enumerate(order.tolist()):
        n = int(rng.integers(0, min(place, 3) + 1))
        own = tuple(f"x{u}" for u in rng.choice(order[:place], n, replace=False))
        parents[f"x{v}"] = own
        rows = {}
        for key in itertools.product(*(values[name] for name in own)):
            p = rng.dirichlet(np.ones(len(values[f"x{v}"])))
            p = np.where(p < 0.1, 0.0, p)
            rows[key] = tuple((p / p.sum()).tolist())
        tables[f"x{v}"] = rows
    return Network(values, parents, tables)


def probability(network, world, do=()):
    """P(world): the product of the tables of the variables that are not set."""
    return math.prod(
        network.tables[name][tuple(world[parent] for parent in own)][network.values[name].index(world[name])]
        for name, own in network.parents.items()
        if name not in do
    )


def worlds(network, do=()):
    """Every assignment that agrees with do, and its probability."""
    for cell in itertools.product(*network.values.values()):
        world = dict(zip(network.values, cell, strict=True))
        if dict(do).items() <= world.items():
            yield world, probability(network, world, do)
