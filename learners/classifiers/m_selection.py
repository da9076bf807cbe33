"""Selection of the m of m-estimates on held-out rows."""

from __future__ import annotations

import numpy as np

from learners.classifiers.description import round_estimates
from learners.classifiers.estimates.context_tree import GRID, build_context_trees, m_estimates
from learners.classifiers.lookup import look_up_tables
from learners.classifiers.lookup.many_classes import many_class_table_layout
from learners.classifiers.structure import Structure
from learners.counts.family_counts import FamilyCounts
from learners.kernels.arrays import Floats
from learners.passes.engine import Advance, ignore_progress
from learners.schema import Chunk


def select_m_by_hold_out(
    structure: Structure,
    families: FamilyCounts,
    hold_out: Chunk,
    advance: Advance = ignore_progress,
    back_off: str = "context",
) -> tuple[float, dict[str, float]]:
    """Choose the m with the lowest RMSE on the held-out rows, whose counts are subtracted; returns it with the RMSE of
    each value in the grid.

    The families count all rows, including the held-out ones; `back_off` as in `m_estimates`. Ties select the
    smallest m; 1 if no rows are held out.

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
    trees = build_context_trees(rest, lambda n_done, *_: advance(n_done, n_all))
    rmse: dict[str, float] = {}
    # The values of the grid differ in their logarithms alone: where these go is found once, and no model is made.
    layout = many_class_table_layout(families.schema, structure, rest.class_counts, trees)
    for m in GRID:
        advance(n_trees + len(rmse), n_all)
        tables = layout.filled(round_estimates([m_estimates(tree, m, back_off) for tree in trees]))
        of_class: list[Floats] = []  # the probability of each row's own class
        for part in look_up_tables.split_chunk_into_blocks(hold_out, families.schema.n_classes):
            probabilities = np.empty((part.n_rows, families.schema.n_classes))
            look_up_tables.fill_class_probabilities(tables, part.x, 0, part.n_rows, probabilities)
            of_class.append(probabilities[np.arange(part.n_rows), part.y])
        rmse[str(m)] = float(np.sqrt(np.mean((1.0 - np.concatenate(of_class)) ** 2)))
    return min(GRID, key=lambda m: (rmse[str(m)], m)), rmse
