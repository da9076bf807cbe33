"""What is worth knowing of a table once a model has been learned from it."""

from __future__ import annotations

import numpy as np

from learners.classifiers.lookup.lookup import LookupModel
from learners.schema import Schema
from learners.schema.column_summary import FoldingCost, losses

FEW_ROWS = 100
MANY_CLASSES, ROWS_OF_A_CLASS = 20, 5  # on average: with fewer rows, most classes are hardly known
ROWS_OF_A_VALUE = 10  # on average: with fewer, a column of many values may determine the class by chance


def table_warnings(schema: Schema, network: LookupModel | None) -> list[str]:
    """What the model does not keep of its table, and columns that tell all or nothing of the class; a sentence each.

    The schema is as it was inferred from the table; the network what the model has of counted families.
    """
    target, warnings = schema.target, losses(schema, {} if network is None else folding_costs(network))
    if target is not None and not schema.attributes:
        warnings.append(f"No column tells anything of {target!r}: the model answers with the shares of the classes.")
    if network is None:
        return warnings
    n_classes, n_rows = network.class_counts.size, int(network.class_counts.sum())
    if n_classes >= MANY_CLASSES and n_rows < ROWS_OF_A_CLASS * n_classes:
        warnings.append(
            f"{target!r} has {n_classes:,} classes in {n_rows:,} rows: too few rows to tell them apart. Group them into fewer "
            "classes, or name another target if it is an identifier."
        )
    return warnings + [
        f"Column {name!r} determines {target!r} by itself in all rows. If it is known only afterwards, drop it."
        for name in determining_columns(network)
    ]


def determining_columns(model: LookupModel) -> list[str]:
    """Attributes each of whose values occurs with one class only, though a value has many rows."""
    if model.schema.n_classes < 2:
        return []
    found = []
    for i, tree in zip(model.network.order, model.trees, strict=True):
        first, last = (int(tree.cell_starts[node]) for node in tree.level_starts[1:3])  # the level of the class
        counts = tree.cell_count[first:last]
        values = tree.cell_value[first:last][counts > 0]  # one for each class with which it occurs
        n_rows = int(counts.sum())
        if n_rows >= max(FEW_ROWS, ROWS_OF_A_VALUE * values.size) and np.unique(values).size == values.size:
            found.append(model.schema.attributes[i].name)
    return found


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
