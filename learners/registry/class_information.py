"""Information of attributes about the class, in nats: from families, from tables by class, and from rows that a circuit draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from learners.classifiers.averaged_trees import AveragedTrees
from learners.classifiers.estimates.context_tree import ContextTree
from learners.classifiers.lookup.lookup import LookupModel
from learners.kernels.arrays import Floats, Integers

if TYPE_CHECKING:
    from learners.circuits.model import CircuitModel

N_DRAWS = 2000


def network_class_information(model: LookupModel) -> Floats:
    """(n_attributes,) float64: I(X_i; Y | parents of X_i) of a network, see `conditional_class_information`."""
    information = np.zeros(model.schema.n_attributes)
    for attribute, tree in zip(model.network.order, model.trees, strict=True):
        information[attribute] = conditional_class_information(tree)
    return information


def tables_class_information(model: AveragedTrees) -> Floats:
    """(n_attributes,) float64: I(X_i; Y) of averaged trees."""
    return np.array([_information_of_table(model.log_prior, table) for table in model.class_tables])


def _information_of_table(log_prior: Floats, log_table: Floats) -> float:
    """I(X; Y) in nats of log P(y), (n_classes,), and log P(x | y), (n_values, n_classes)."""
    joint = np.exp(log_table + log_prior)
    alone = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return float(np.sum(joint * np.log(joint / alone, where=joint > 0, out=np.zeros(joint.shape))))


def drawn_class_information(model: CircuitModel, target: int) -> Floats:
    """(n_attributes,) float64: the mean over drawn rows of the divergence of P(y | x_i) from P(y), in nats."""
    nothing = np.full((len(model.columns.names), 1), np.nan)
    drawn = model.row_draws(nothing, N_DRAWS, 0, np.zeros(1, np.int64))[0].T
    prior = model.row_marginals(nothing, [target])[0]
    information = np.zeros(model.schema.n_attributes)
    for v in range(information.size):
        alone = np.full(drawn.shape, np.nan)
        alone[v] = drawn[v]
        if not np.isnan(alone[v]).all():  # else the circuit has no leaf of it
            posterior = model.row_marginals(alone, [target])[0]
            logs = np.log(posterior / prior, where=posterior > 0, out=np.zeros(posterior.shape))
            information[v] = max(0.0, float(np.sum(posterior * logs, axis=1).mean()))
    return information


def conditional_class_information(tree: ContextTree) -> float:
    """I(X; Y | parents) in nats of a family, less the degrees of freedom by twice the rows; at least 0.

    `tree`: whose first level branches on the class.
    """
    first, last = int(tree.level_starts[-2]), int(tree.level_starts[-1])
    if last - first == 0 or tree.level_starts.size < 3:
        return 0.0
    context = _contexts(tree, first, last)
    cells = slice(int(tree.cell_starts[first]), int(tree.cell_starts[last]))
    node = np.repeat(np.arange(last - first), np.diff(tree.cell_starts[first : last + 1]))
    counts, x = tree.cell_count[cells].astype(np.float64), tree.cell_value[cells]
    cell_context = context[node]
    n_all = counts.sum()
    of_node = np.bincount(node, counts)
    value, value_of_cell = np.unique(cell_context * tree.n_values + x, return_inverse=True)
    of_value = np.bincount(value_of_cell, counts)
    of_context = np.bincount(context, of_node)
    ratio = counts * of_context[cell_context] / (of_value[value_of_cell] * of_node[node])
    information = float(np.sum(counts * np.log(ratio)) / n_all)
    n_values = np.bincount(value // tree.n_values, minlength=of_context.size)
    n_classes = np.bincount(context, minlength=of_context.size)
    freedom = float(np.sum((n_values - 1) * (n_classes - 1)))
    return max(0.0, information - freedom / (2 * n_all))


def _contexts(tree: ContextTree, first: int, last: int) -> Integers:
    """Number each deepest node from 0; nodes with equal values of all parents share a number."""
    node = np.arange(first, last)
    context = np.zeros(node.size, np.int64)
    for _ in range(tree.level_starts.size - 3):
        branch = tree.branch[node]
        context = np.unique(context * (int(branch.max()) + 1) + branch, return_inverse=True)[1]
        node = tree.parent[node]
    return context
