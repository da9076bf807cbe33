"""The many small look-up tables of a pool, added up into fewer: each table costs a query one join."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from learners.ensembles.model import EnsembleModel
from learners.kernels.arrays import Floats, Integers, freeze
from learners.registry.sql.families import Families
from learners.schema import Chunk

# Cells that a table may have after others were added to it, from the largest: all together shall have no more than `MOST_NUMBERS`.
CELLS = (4096, 512, 0)
MOST_NUMBERS = 1 << 18


def merged_families(model: EnsembleModel) -> Families:
    """The terms of a pool as tables over codes: attributes come first among its columns, and behind them the views.

    A family whose table stays small is told by the codes of the attributes themselves, for which no view must be computed.
    """
    n = model.schema.n_attributes
    sizes = (*model.schema.domain_sizes.tolist(), *model.views.schema.domain_sizes.tolist())
    order, above = model.family_views
    members = [(*parents, view) for view, parents in zip(order, above, strict=True)]
    n_classes = model.schema.n_classes
    for most in CELLS:
        scopes = [_scope(model, n, of_one, sizes, most) for of_one in members]
        groups = _grouped(scopes, sizes, most)
        columns = [tuple(sorted(set().union(*(scopes[family] for family in group)))) for group in groups]
        if sum(_n_cells(of_one, sizes) for of_one in columns) * n_classes <= MOST_NUMBERS:
            break

    def logs(number: int) -> Floats:
        codes = np.indices([sizes[column] + 1 for column in columns[number]]).reshape(len(columns[number]), -1)
        by_column = dict(zip(columns[number], codes, strict=True))
        total = np.zeros((codes.shape[1], n_classes))
        for family in groups[number]:
            total += model.family_logs(family)[_cells(model, n, members[family], by_column)]
        return total

    return Families(
        tuple(of_one[-1] for of_one in columns),
        tuple(of_one[:-1] for of_one in columns),
        sizes,
        logs,
        takes_unseen=True,
    )


def _n_cells(columns: Sequence[int] | frozenset[int], sizes: Sequence[int]) -> int:
    return math.prod(sizes[column] + 1 for column in columns)


def _scope(model: EnsembleModel, n: int, members: Sequence[int], sizes: Sequence[int], most: int) -> frozenset[int]:
    """The columns that tell a family: attributes if there are few combinations, else its views."""
    of_attributes = frozenset(int(model.views.attribute[view]) for view in members)
    return of_attributes if _n_cells(of_attributes, sizes) <= most else frozenset(n + view for view in members)


def _grouped(scopes: Sequence[frozenset[int]], sizes: Sequence[int], most: int) -> list[list[int]]:
    """Families whose tables become one: each, the largest first, joins the first group that stays small with it."""
    groups: list[tuple[frozenset[int], list[int]]] = []
    for family in sorted(range(len(scopes)), key=lambda family: -_n_cells(scopes[family], sizes)):
        for place, (columns, group) in enumerate(groups):
            both = columns | scopes[family]
            if both == columns or _n_cells(both, sizes) <= most:
                groups[place] = (both, [*group, family])
                break
        else:
            groups.append((scopes[family], [family]))
    return [group for _, group in groups]


def _cells(model: EnsembleModel, n: int, members: Sequence[int], by_column: dict[int, Integers]) -> Integers:
    """Of each combination of codes the cell of a family."""
    views = model.views
    n_rows = next(iter(by_column.values())).size
    x = np.zeros((n, n_rows), model.schema.code_dtype)
    for column, codes in by_column.items():
        if column < n:
            x[column] = codes
    freeze(x)
    by_views = views.chunk(Chunk(x, None)).x
    cells: Integers = np.zeros(n_rows, np.int64)
    for view in members:
        own = by_column.get(n + view, by_views[view])
        cells = cells * (int(views.schema.domain_sizes[view]) + 1) + own
    return cells
