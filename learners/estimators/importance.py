"""How much each column tells of the class, in a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree
from learners.classifiers.lookup.lookup import LookupModel
from learners.errors import NoImportances
from learners.kernels.arrays import Floats, Integers
from learners.models.model import Model


def importances(model: Model, names: Sequence[str]) -> Floats:
    """The share of each column in what the attributes of a network tell of the class.

    An attribute tells I(X_i; Y | parents of X_i), the information that it has of the class where its parents in the network are
    known; what few rows would show by chance is taken off. A column that the network does not use tells nothing.

    Parameters
    ----------
    model : Model
        A network classifier.
    names : sequence of str
        The columns asked about.

    Returns
    -------
    (len(names),) float64
        They sum to 1; all 0 where nothing tells anything.

    Raises
    ------
    NoImportances
        If the model is no network.

    References
    ----------
    Miller (1955), Note on the bias of information estimates: the correction by the degrees of freedom.
    """
    if not isinstance(model, LookupModel):
        raise NoImportances(model.kind)
    told = dict.fromkeys(names, 0.0)
    for attribute, tree in zip(model.network.order, model.trees, strict=True):
        told[model.schema.attributes[attribute].name] = information_of(tree)
    found = np.array([told[name] for name in names])
    return found / found.sum() if found.sum() > 0 else found


def information_of(tree: ContextTree) -> float:
    """I(X; Y | parents) in nats of a family, less the degrees of freedom by twice the rows; at least 0.

    Parameters
    ----------
    tree : ContextTree
        Whose first level branches on the class.
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
