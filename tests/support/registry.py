"""Networks and rush hours, for learners of the registry."""

import itertools

import numpy as np
import pyarrow as pa

from learners.classifiers.estimates.context_tree import build_context_trees, m_estimates
from learners.classifiers.estimates.hdp import HDPParameters, hdp_map_estimates
from learners.classifiers.lookup.lookup import LookupModel
from learners.classifiers.structure import (
    k_dependence_structure,
    naive_bayes_structure,
    tree_augmented_structure,
)
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from tests.naive.estimates import node_paths
from tests.strategies import chunk_of, schema_of


def trained(seed, sizes, n_classes, structure_of, hierarchical=False, n_rows=60):
    schema = schema_of(sizes, n_classes)
    chunk = chunk_of(seed, schema, n_rows)
    pairs = PairwiseCounts(schema)
    pairs.update(chunk)
    structure = structure_of(pairs)
    families = FamilyCounts(schema, structure.families())
    families.update(chunk)
    trees = build_context_trees(families)
    if hierarchical:
        estimates = [posterior.estimates for posterior in hdp_map_estimates(trees, HDPParameters())]
    else:
        estimates = [m_estimates(tree, 1.0) for tree in trees]
    return LookupModel.of(schema, structure, families.class_counts, trees, estimates, {})


def probability(tree, nodes, estimates, path, x):
    """p(x | the context of a path of class and parent codes), walking down the tree, whose nodes are by path, from the definition."""
    p = estimates.rest[0]
    for level in range(len(path) + 1):
        node = nodes.get(path[:level])
        if node is None:
            break
        of_x = [c for c in range(tree.cell_starts[node], tree.cell_starts[node + 1]) if tree.cell_value[c] == x]
        if of_x:
            p = estimates.probability[of_x[0]]
        elif level:
            p = estimates.rest[node] * p if estimates.hierarchical else estimates.rest[node]
    return p


def network_joint(model):
    """{codes and class: probability} from the tables, world by world."""
    sizes = [*model.schema.domain_sizes.tolist(), model.schema.n_classes]
    counts = model.class_counts
    prior = (counts + 1 / counts.size) / (counts.sum() + 1)
    joint, network = {}, model.network
    trees = [({path: node for node, path in enumerate(node_paths(tree))}, tree) for tree in model.trees]
    for world in itertools.product(*map(range, sizes)):
        p = prior[world[-1]]
        families = zip(network.order, network.parents, trees, model.estimates, strict=True)
        for attribute, parents, (nodes, tree), estimates in families:
            path = (world[-1], *(world[v] for v in parents))
            p *= probability(tree, nodes, estimates, path, world[attribute])
        joint[world] = p
    return joint


STRUCTURES = {
    "nb": lambda pairs: naive_bayes_structure(len(pairs.margins)),
    "tan": tree_augmented_structure,
    "kdb2": lambda pairs: k_dependence_structure(pairs, 2),
    "kdb3": lambda pairs: k_dependence_structure(pairs, 3),
}


N = 6_000
START = np.datetime64("2026-01-01", "s")


def table(level, seed=0):
    """Rows an hour apart: the odds of the class go with a number, and with the level of their day."""
    random = np.random.default_rng(seed)
    hours = np.arange(N)
    a = random.integers(0, 4, N)
    odds = 1.2 * (a - 1.5) + level(hours)
    return pa.table(
        {
            "when": START + hours.astype("timedelta64[h]"),
            "ticket": 1_000 + hours,
            "a": a,
            "b": random.normal(size=N),
            "late": np.where(random.random(N) < 1 / (1 + np.exp(-odds)), "yes", "no"),
        }
    )


def regimes(hours):
    """Weeks of their own, of which none tells anything of the next."""
    return np.random.default_rng(3).normal(0, 2.5, N)[hours // 168]


def rush_hours(hours):
    """Weeks of their own, and hours that come again."""
    return regimes(hours) + np.where((hours % 24 >= 16) & (hours % 24 < 20), 4.0, -1.0)
