"""The m of m-estimates, measured on a hold-out."""

from __future__ import annotations

import numpy as np

from learners.classifiers.estimates.context_tree import GRID, m_estimates, trees_of
from learners.classifiers.lookup.compression import rounded
from learners.classifiers.lookup.kernels import ManyClassTables
from learners.classifiers.lookup.look_up_tables import probabilities
from learners.classifiers.lookup.many_classes import layout_of
from learners.classifiers.structure import Structure
from learners.counts.family_counts import FamilyCounts
from learners.kernels.arrays import Floats
from learners.models.model import blocks_of
from learners.passes.engine import Advance, unheard
from learners.schema import Chunk


def choose_m(
    structure: Structure, families: FamilyCounts, hold_out: Chunk, advance: Advance = unheard
) -> tuple[float, dict[str, float]]:
    """The m of least RMSE on the hold-out, whose counts are taken out of the others, and the RMSE of the grid's values.

    The families count all rows, the hold-out's among them. Of equally good m the smallest; 1 if the hold-out has no
    rows.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 6.1.
    """
    if not hold_out.n_rows:
        return 1.0, {}
    rest, held = families.empty(), families.empty()
    held.update(hold_out)
    rest.merge(families)
    rest.subtract(held)
    n_trees, n_all = len(families.families), len(families.families) + len(GRID)
    trees = trees_of(rest, lambda n_done, *_: advance(n_done, n_all))
    rmse: dict[str, float] = {}
    # The values of the grid differ in their logarithms alone: where these go is found once, and no model is made.
    layout = layout_of(families.schema, structure, rest.class_counts, trees)
    for m in GRID:
        advance(n_trees + len(rmse), n_all)
        tables = layout.filled(rounded([m_estimates(tree, m) for tree in trees]))
        parts = [_of_class(tables, part) for part in blocks_of(hold_out, families.schema.n_classes)]
        rmse[str(m)] = float(np.sqrt(np.mean((1.0 - np.concatenate(parts)) ** 2)))
    return min(GRID, key=lambda m: (rmse[str(m)], m)), rmse


def _of_class(tables: ManyClassTables, rows: Chunk) -> Floats:
    """(n_rows,) float64: the probability of each row's own class."""
    assert rows.y is not None
    found = np.empty((rows.n_rows, tables.log_prior.size))
    probabilities(tables, rows.x, 0, rows.n_rows, found)
    return found[np.arange(rows.n_rows), rows.y]
