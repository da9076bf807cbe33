"""Which columns a posterior over structures keeps of a table that has too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.information import x_log_x
from learners.errors import SchemaError, UnknownColumn
from learners.orders.parameters import edge_of
from learners.passes.learner import Passes
from learners.schema import LeftOut, Schema
from learners.schema.overrides import SCREENED

# Sets of columns are 64 bits everywhere: in the lattice, in its files and in the kernels.
MOST_COLUMNS = 64


def screened(schema: Schema, about: Sequence[str], required: Sequence[str]) -> Passes[Schema]:
    """The schema, or of too many columns those with most information about some: one more pass.

    about: these columns are kept, and the 64 in all that tell most about any of them.
    required: edges, each as "parent->child", whose columns are kept, too.
    Raises UnknownColumn; SchemaError if there are too many columns and `about` is empty, or there are too many to keep.
    References: Fan, Lv (2008), Sure independence screening for ultrahigh dimensional feature space; here by mutual
    information.
    """
    names = [attribute.name for attribute in schema.attributes]
    gone = {column.name for column in schema.left_out}
    for name in about:
        if name not in names and name not in gone:
            raise UnknownColumn(name, names)
    n_over = schema.n_attributes - MOST_COLUMNS
    if n_over <= 0:
        return schema
    targets = [names.index(name) for name in dict.fromkeys(about) if name in names]
    if not targets:
        raise SchemaError(
            f"The table has {schema.n_attributes} columns; posteriors over structures have at most {MOST_COLUMNS}. Name the "
            f"columns that you ask about: screen_for=[{names[0]!r}] keeps the {MOST_COLUMNS} with most information about "
            f"{names[0]!r}. Or drop {n_over}: columns={{{names[-1]!r}: 'drop', …}}."
        )
    kept = set(targets).union(*(edge_of(text, names, "required") for text in required))
    if len(kept) > MOST_COLUMNS:
        raise SchemaError(
            f"screen_for and required name {len(kept)} columns; posteriors over structures have at most {MOST_COLUMNS}. Name fewer."
        )
    families = [Family(j, (i,)) for i in targets for j in range(schema.n_attributes) if j not in kept]
    found: FamilyCounts = yield FamilyCounts(schema, families)
    most = np.full(schema.n_attributes, -np.inf)
    for place, family in enumerate(families):
        most[family.attribute] = max(most[family.attribute], information(found, place))
    best = np.argsort(-most, kind="stable")
    kept |= set(best[: MOST_COLUMNS - len(kept)].tolist())
    words = f"{SCREENED}: other columns have more information about {', '.join(map(repr, dict.fromkeys(about)))}"
    return replace(
        schema,
        attributes=tuple(own for j, own in enumerate(schema.attributes) if j in kept),
        left_out=(*schema.left_out, *(LeftOut(name, words) for j, name in enumerate(names) if j not in kept)),
    )


def information(counts: FamilyCounts, place: int) -> float:
    """Mutual information of a column and its one parent, in nats, less what chance would show (Miller 1955)."""
    _, parents, x, n = counts.cells(place)
    of_x, of_parent = np.bincount(x, n), np.bincount(parents[:, 0], n)
    freedom = (np.count_nonzero(of_x) - 1) * (np.count_nonzero(of_parent) - 1)
    total = x_log_x(n).sum() + x_log_x(n.sum()) - x_log_x(of_x).sum() - x_log_x(of_parent).sum()
    return float(total - freedom / 2) / max(1, int(n.sum()))
