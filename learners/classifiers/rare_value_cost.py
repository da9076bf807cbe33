"""What folding the rare values of a column can have cost."""

from __future__ import annotations

import numpy as np

from learners.classifiers.lookup.lookup import LookupModel
from learners.schema.discarded_columns import FoldingCost


def folding_costs(model: LookupModel) -> dict[str, FoldingCost]:
    """Of each attribute of a network that has folded values, by its name.

    Folding o of X loses I(X; Y) - I(fold(X); Y) = P(o) I(X; Y | o), which is at most P(o) H(Y | o): what the folded
    rows leave open of the class. Both follow from the counts that the model has anyway.
    """
    found = {}
    for i, tree in zip(model.network.order, model.trees, strict=True):
        attribute = model.schema.attributes[i]
        if not attribute.n_folded:
            continue
        first, last = (int(tree.cell_starts[node]) for node in tree.level_starts[1:3])  # the level of the class
        is_folded = tree.cell_value[first:last] == attribute.unseen_code
        counts = tree.cell_count[first:last][is_folded]
        n, n_rows = int(counts.sum()), int(tree.cell_count[first:last].sum())
        entropy = float(np.log(n) - (counts * np.log(counts)).sum() / n) if n else 0.0
        found[attribute.name] = FoldingCost(n / n_rows, n / n_rows * entropy)
    return found
