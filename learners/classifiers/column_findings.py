"""Findings about columns for users: warnings, the information of each parent, and the contexts of an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.lookup.lookup import LookupModel
from learners.kernels.arrays import Floats, Integers
from learners.schema import Schema
from learners.schema.schema_inference import FoldingCost, schema_loss_warnings
from learners.wording import count_with_noun

FEW_ROWS = 100
# With more different whole numbers as classes than the first, a target looks like a number to estimate; with more than the second, if
# neighbouring numbers are about as frequent, as counts and ages are and identifiers are not.
MOST_WHOLE_NUMBERS, MOST_NEIGHBOURS = 50, 10
LEAST_LIKENESS = 0.5  # correlation of the frequencies of neighbouring numbers
MANY_CLASSES, ROWS_OF_A_CLASS = 20, 5  # on average: with fewer rows, most classes are hardly known
# Rows of a table, and of a class on average: with fewer, chance outweighs what is learned.
LEAST_ROWS, LEAST_ROWS_OF_A_CLASS = 50, 10
RARE_ROWS, MOST_RARE = 5, 3  # a class of fewer rows is rare; so many are named
ROWS_OF_A_VALUE = 10  # on average: with fewer, a column of many values may determine the class by chance


def training_column_warnings(
    schema: Schema, network: LookupModel | None, facts: Mapping[str, object] = MappingProxyType({})
) -> list[str]:
    """Return warnings about information that the model omits, and about columns with all or none of the class
    information.

    `schema`: as inferred from the table; `network`: the model's network of counted families, if any; `facts`: those of
    the model, whose class_counts stand in for the network's.
    """
    target, warnings = (
        schema.target,
        schema_loss_warnings(schema, {} if network is None else folded_value_information_loss(network)),
    )
    if target is not None and not schema.attributes:
        warnings.append(f"No column has information about {target!r}: the model answers with the class shares.")
    if target is not None and looks_like_regression(schema, network):
        warnings.append(
            f"{target!r} holds {schema.n_classes:,} different whole numbers, which looks like regression: fewpass learns each as a class of "
            "its own. Group the numbers into ranges, or use a regression tool."
        )
    if network is None:
        counts = facts.get("class_counts")
        few = few_rows_warning(schema, np.asarray(counts, np.int64)) if isinstance(counts, list) else ""
        return [*warnings, few] if few else warnings
    n_classes, n_rows = network.class_counts.size, int(network.class_counts.sum())
    if n_classes >= MANY_CLASSES and n_rows < ROWS_OF_A_CLASS * n_classes:
        warnings.append(
            f"{target!r} has {n_classes:,} classes in {n_rows:,} rows: too few rows to distinguish them. Group them into fewer classes, "
            "or name another target if it is an identifier."
        )
    elif few := few_rows_warning(schema, network.class_counts):
        warnings.append(few)
    return warnings + [
        f"Column {name!r} alone determines {target!r} in all rows. Drop it if it is known only after the class."
        for name in class_determining_columns(network)
    ]


def few_rows_warning(schema: Schema, class_counts: Integers) -> str:
    """Return a warning about too few rows in all, or in some classes; empty if there are enough.

    `class_counts`: (n_classes,) int64; a class without rows was declared, not seen.
    """
    seen = class_counts[class_counts > 0]
    n_rows = int(seen.sum())
    least = max(LEAST_ROWS, LEAST_ROWS_OF_A_CLASS * seen.size)
    if n_rows < least:
        return (
            f"{count_with_noun(n_rows, 'row')} {'is' if n_rows == 1 else 'are'} too few to learn {seen.size:,} classes of {schema.target!r}: "
            f"the probabilities are largely chance. Train on {least:,} rows or more, better on some hundred."
        )
    rare = [str(schema.classes[k]) for k in np.flatnonzero((class_counts > 0) & (class_counts < RARE_ROWS))]
    if not rare:
        return ""
    more = f" and {len(rare) - MOST_RARE:,} more" if len(rare) > MOST_RARE else ""
    verb = "class has" if len(rare) == 1 else "classes have"
    return (
        f"{len(rare):,} {verb} fewer than {RARE_ROWS} rows ({', '.join(map(repr, rare[:MOST_RARE]))}{more}), which is too few to "
        "learn from. Add rows, or merge classes."
    )


def looks_like_regression(schema: Schema, network: LookupModel | None) -> bool:
    """Return whether the classes are whole numbers whose size seems to matter: many, or fewer with a smooth distribution."""
    if schema.class_type != "int64" or schema.n_classes <= MOST_NEIGHBOURS:
        return False
    if schema.n_classes > MOST_WHOLE_NUMBERS or network is None:
        return schema.n_classes > MOST_WHOLE_NUMBERS
    counts = network.class_counts[np.argsort([int(name) for name in schema.classes])].astype(np.float64)
    if counts[1:].std() == 0.0 or counts[:-1].std() == 0.0:
        return False
    return bool(np.corrcoef(counts[1:], counts[:-1])[0, 1] > LEAST_LIKENESS)


def class_determining_columns(model: LookupModel) -> list[str]:
    """Return the attributes whose values each occur with one class only, although values have many rows."""
    if model.schema.n_classes < 2:
        return []
    names = []
    for i, tree in zip(model.network.order, model.trees, strict=True):
        first, last = (int(tree.cell_starts[node]) for node in tree.level_starts[1:3])  # the level of the class
        counts = tree.cell_count[first:last]
        values = tree.cell_value[first:last][counts > 0]  # one for each class with which it occurs
        n_rows = int(counts.sum())
        if n_rows >= max(FEW_ROWS, ROWS_OF_A_VALUE * values.size) and np.unique(values).size == values.size:
            names.append(model.schema.attributes[i].name)
    return names


def folded_value_information_loss(model: LookupModel) -> dict[str, FoldingCost]:
    """Return the cost of folded values for each attribute of a network that has them, by name.

    Folding o of X loses I(X; Y) - I(fold(X); Y) = P(o) I(X; Y | o), which is at most P(o) H(Y | o): the class
    entropy of the folded rows. Both follow from counts that the model stores.
    """
    costs = {}
    for i, tree in zip(model.network.order, model.trees, strict=True):
        attribute = model.schema.attributes[i]
        if not attribute.n_folded:
            continue
        first, last = (int(tree.cell_starts[node]) for node in tree.level_starts[1:3])  # the level of the class
        is_folded = tree.cell_value[first:last] == attribute.unseen_code
        counts = tree.cell_count[first:last][is_folded]
        n, n_rows = int(counts.sum()), int(tree.cell_count[first:last].sum())
        entropy = float(np.log(n) - (counts * np.log(counts)).sum() / n) if n else 0.0
        costs[attribute.name] = FoldingCost(n / n_rows, n / n_rows * entropy)
    return costs


def parent_information_gains(tree: ContextTree) -> Floats:
    """Return the information that each further parent adds about the attribute, in nats: I(X; class), I(X; P_1 |
    class), I(X; P_2 | class, P_1), …

    (n_levels - 1,) float64, never negative, of a tree with the class as level 1 and parent l as level l + 1. Their sum
    is I(X; class, parents). Zeros of a tree without rows.

    References
    ----------
    Cover and Thomas (2006), Elements of Information Theory, theorem 2.5.2 (the chain rule of information).
    """
    n_levels = tree.level_starts.size - 1
    n_rows = int(tree.cell_count[tree.cell_starts[0] : tree.cell_starts[1]].sum()) if tree.n_nodes else 0
    if not n_rows:
        return np.zeros(max(0, n_levels - 1))
    log_share = np.log(tree.cell_count / np.repeat(tree.node_counts(), np.diff(tree.cell_starts)))
    ends = pairwise(tree.cell_starts[tree.level_starts].tolist())
    entropies = np.array([-(tree.cell_count[a:b] * log_share[a:b]).sum() / n_rows for a, b in ends])
    return np.maximum(0.0, entropies[:-1] - entropies[1:])


class Context(NamedTuple):
    """One context of an attribute."""

    codes: tuple[int, ...]  # of the class, then of the parents
    n_rows: Integers  # (n_values,) int64
    probability: Floats  # (n_values,) float64


def most_frequent_contexts(tree: ContextTree, estimates: Estimates, limit: int) -> list[Context]:
    """Return at most `limit` contexts that occurred with all parents known, those with the most rows first."""
    first, last = int(tree.level_starts[-2]), int(tree.level_starts[-1])
    counts = tree.node_counts()[first:last]
    order = np.argsort(-counts, kind="stable")[:limit]
    return [_context(tree, estimates, first + int(place)) for place in order]


def _context(tree: ContextTree, estimates: Estimates, node: int) -> Context:
    path = [node]  # to the root
    while path[-1]:
        path.append(int(tree.parent[path[-1]]))
    probability = np.zeros(tree.n_values)
    for step, each in enumerate(reversed(path)):  # from the root
        rest = float(estimates.rest[each])
        probability = probability * rest if estimates.hierarchical and step else np.full(tree.n_values, rest)
        cells = slice(int(tree.cell_starts[each]), int(tree.cell_starts[each + 1]))
        probability[tree.cell_value[cells]] = estimates.probability[cells]
    n_rows = np.zeros(tree.n_values, np.int64)
    cells = slice(int(tree.cell_starts[node]), int(tree.cell_starts[node + 1]))
    n_rows[tree.cell_value[cells]] = tree.cell_count[cells]
    codes = tuple(int(tree.branch[each]) for each in reversed(path[:-1]))
    return Context(codes, n_rows, probability)
