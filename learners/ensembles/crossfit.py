"""Honest scores of a small table: members learned without the rows that they are asked about."""

from __future__ import annotations

import numpy as np

from learners.classifiers.lookup.tables import log_joints
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.counts.row_samples import random_folds
from learners.ensembles.cuts import OF_PAIRS
from learners.ensembles.fit import Pool, fit_members
from learners.ensembles.lookup.compile import pool_tables
from learners.ensembles.members import distinct_families, draw_members
from learners.kernels.arrays import Floats
from learners.passes.engine import Advance
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views

N_FOLDS = 3
# Above, the optimism of structures and weights that have seen a row is small, and learning them again is not.
SMALL = 5_000


def out_of_fold_scores(
    schema: Schema, rows: Chunk, ks: tuple[int, ...], seed: int, threads: int, advance: Advance
) -> Floats:
    """(n, n_classes) float64: mean log scores of the members for each row, learned from the other folds.

    Structures, counts and weights are of the other folds: leaving a row out of the counts alone is too kind to it:
    parents and weights have been chosen with it. `ks` and seed as of `draw_members`; the result does not depend on the
    number of threads.
    """
    views, of_pairs = Views(schema), Views(schema, OF_PAIRS)
    fold = random_folds(rows.x, N_FOLDS, seed)
    scores = np.zeros((rows.n_rows, schema.n_classes))
    for number in range(N_FOLDS):
        advance(number, N_FOLDS)
        whole = rows.rows(fold != number)
        pairs = PairwiseCounts(of_pairs.schema)
        pairs.update(of_pairs.chunk(whole))
        members = draw_members(pairs, views, ks, seed)
        families = FamilyCounts(views.schema, distinct_families(members))
        families.update(views.chunk(whole))
        fitted = fit_members(families, members, views.chunk(whole), threads)
        tables = pool_tables(views.schema, families.class_counts, Pool(fitted.members, fitted.levels))
        held = views.chunk(rows.rows(fold == number))
        own = np.empty((held.n_rows, schema.n_classes))
        log_joints(tables, held.x, 0, held.n_rows, own)
        scores[fold == number] = own
    return scores
