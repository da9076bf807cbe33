"""How much each column tells of the class, as the model itself has it: no data are needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.circuits.model import CircuitModel
from learners.classifiers.averaged_trees import AveragedTrees
from learners.classifiers.baselines.boosted import BoostedModel
from learners.classifiers.estimates.context_tree import ContextTree
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.model import EnsembleModel
from learners.errors import NoImportances
from learners.kernels.arrays import Floats, Integers
from learners.models.model import Model

N_DRAWS = 2000


def column_importances(model: Model, names: Sequence[str]) -> Floats:
    """The share of each column in what the columns tell of the class. A column that the model does not use tells nothing.

    In a network an attribute tells I(X_i; Y | parents of X_i), the information that it has of the class where its parents in the
    network are known; what few rows would show by chance is taken off. An ensemble is read by its joint member. Averaged trees and
    circuits tell I(X_i; Y), circuits over `N_DRAWS` rows that they draw themselves; boosted trees the gain of their splits.

    `model`: a classifier.
    `names`: the columns asked about.
    Returns (len(names),) float64: they sum to 1; all 0 where nothing tells anything.
    Raises NoImportances if the model has no classes, or is of another kind.

    References
    ----------
    Miller (1955), Note on the bias of information estimates: the correction by the degrees of freedom.
    """
    information = _information(model).tolist()
    own = {attribute.name: share for attribute, share in zip(model.schema.attributes, information, strict=True)}
    shares = np.array([own.get(name, 0.0) for name in names])
    return shares / shares.sum() if shares.sum() > 0 else shares


def _information(model: Model) -> Floats:
    """(n_attributes,) float64: what each attribute tells, in the model's own unit."""
    if isinstance(model, EnsembleModel):
        return _information(model.joint)
    if isinstance(model, LookupModel):
        information = np.zeros(model.schema.n_attributes)
        for attribute, tree in zip(model.network.order, model.trees, strict=True):
            information[attribute] = conditional_class_information(tree)
        return information
    if isinstance(model, BoostedModel):
        return model.gains
    if isinstance(model, AveragedTrees):
        return np.array([_information_of_table(model.log_prior, table) for table in model.class_tables])
    if isinstance(model, CircuitModel) and model.columns.class_variable is not None:
        return _information_in_draws(model, model.columns.class_variable)
    raise NoImportances(model.kind)


def _information_of_table(log_prior: Floats, log_table: Floats) -> float:
    """I(X; Y) in nats of log P(y), (n_classes,), and log P(x | y), (n_values, n_classes)."""
    joint = np.exp(log_table + log_prior)
    alone = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    return float(np.sum(joint * np.log(joint / alone, where=joint > 0, out=np.zeros(joint.shape))))


def _information_in_draws(model: CircuitModel, target: int) -> Floats:
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
    """Of each of the deepest nodes a number, from 0, that is equal where all parents have equal values."""
    node = np.arange(first, last)
    context = np.zeros(node.size, np.int64)
    for _ in range(tree.level_starts.size - 3):
        branch = tree.branch[node]
        context = np.unique(context * (int(branch.max()) + 1) + branch, return_inverse=True)[1]
        node = tree.parent[node]
    return context
