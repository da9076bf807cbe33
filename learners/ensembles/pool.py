"""A pool of members as lookup tables, and its out-of-fold scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.compilation import compile_lookup_tables
from learners.classifiers.structure import Structure
from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.folds import random_folds
from learners.counts.pairwise import PairwiseCounts
from learners.ensembles.cuts import OF_PAIRS
from learners.ensembles.fit import Pool, fit_ensemble_members, is_small_and_wide, new_row_log_scores
from learners.ensembles.levels import Levels
from learners.ensembles.members import distinct_families, draw_ensemble_members
from learners.ensembles.model import Entries, spread_codes
from learners.ensembles.packed_tables import GRID
from learners.kernels.arrays import Float32s, Floats, Integers, concatenate_arrays
from learners.passes.engine import Advance
from learners.passes.memory import release_free_memory
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views

# Beyond the largest number of float16 there is only infinity.
MOST_SPREAD = 60_000.0


@dataclass(frozen=True)
class PooledFamilies(Structure):
    """Families of several members in sequence. An attribute may occur repeatedly; each member's families are acyclic."""

    def __post_init__(self) -> None:
        """Skip the order check of `Structure`: members have no common order."""


class CompiledPool(NamedTuple):
    """Lookup tables of a pool, with the entry of each family."""

    tables: kernels.LookupTables
    entries: Entries

    def moved(self, offsets: Floats | None) -> CompiledPool:
        """Add an offset to the score of each class, if given."""
        tables = self.tables
        return self if offsets is None else self._replace(tables=tables._replace(log_prior=tables.log_prior + offsets))

    def scaled(self, factor: float) -> CompiledPool:
        """Multiply all scores by a factor: a temperature, or the ensemble's share beside a correction."""
        tables, entries = self
        dense, vectors = (spread_codes(one, factor**2) for one in (entries.spread_dense, entries.spread_vectors))
        tables = tables._replace(
            dense=on_grid(tables.dense, factor),
            vectors=on_grid(tables.vectors, factor),
            log_prior=tables.log_prior * factor,
        )
        return CompiledPool(tables, replace(entries, spread_dense=dense, spread_vectors=vectors))


def on_grid(logs: Float32s, factor: float) -> Float32s:
    """Multiply terms by a factor, and round them to multiples of 1/GRID, of which fewer bits tell: models are compressed."""
    return (np.rint(logs * np.float32(factor * GRID)) / GRID).astype(np.float32, copy=False)


def compile_ensemble_pool(schema: Schema, class_counts: Integers, pool: Pool) -> CompiledPool:
    """Compile the families in use to lookup tables over a schema of views; removes the trees from the pool."""
    dense, vectors = [], []
    for family, weights, levels in _in_use(pool):
        spread = _compiled(schema, class_counts, [family], [(levels.tree, levels.spreads(*weights))])
        dense.append(np.minimum(spread.dense, MOST_SPREAD).astype(np.float16))
        vectors.append(np.minimum(spread.vectors, MOST_SPREAD).astype(np.float16))
    used = [(number, *one.weights(index)) for number, one in enumerate(pool.members) for index in one.used]
    numbers, alone, parents = np.array(used, np.float64).reshape(-1, 3).T
    entries = Entries(
        numbers.astype(np.int64),
        np.ascontiguousarray(alone),
        np.ascontiguousarray(parents),
        concatenate_arrays(dense, np.empty(0, np.float16)),
        concatenate_arrays(vectors, np.empty((0, class_counts.size), np.float16)),
    )
    return CompiledPool(compile_ensemble_pool_tables(schema, class_counts, pool), entries)


def compile_ensemble_pool_tables(schema: Schema, class_counts: Integers, pool: Pool) -> kernels.LookupTables:
    """Compile the tables of the families in use; removes the trees from the pool, so that trees and tables are not in
    memory together.

    The geometric pool is a sum of log probabilities, so lookups cost as much as in one network: the weighted
    terms of each of M members, divided by M.
    """
    in_use = _in_use(pool)
    pool.levels.clear()
    families = [family for family, _, _ in in_use]
    in_use.reverse()

    def terms() -> Iterator[tuple[ContextTree, Estimates]]:
        while in_use:
            _, weights, levels = in_use.pop()
            yield levels.tree, levels.weighted(*weights)
        release_free_memory()  # what the trees have left behind, before the tables are joined

    return _compiled(schema, class_counts, families, terms())


def compile_left_out_tables(schema: Schema, class_counts: Integers, pool: Pool) -> kernels.LookupTables:
    """Compile tables that leave each training row out of its own class; only the score of that class is valid."""
    in_use = _in_use(pool)
    terms = ((levels.tree, levels.left_out(*weights)) for _, weights, levels in in_use)
    return _compiled(schema, class_counts, [family for family, _, _ in in_use], terms)


def _in_use(pool: Pool) -> list[tuple[Family, tuple[float, float], Levels]]:
    """Return the families in use, the weights of their two terms in the members' mean, and their trees."""
    n = len(pool.members)
    families = []
    for one in pool.members:
        for index in one.used:
            alone, parents = one.weights(index)
            levels = pool.levels[one.member.families[index]].cut(one.k)
            families.append((one.family(index), (alone / n, parents / n), levels))
    return families


def _compiled(
    schema: Schema, class_counts: Integers, families: Sequence[Family], terms: Iterable[tuple[ContextTree, Estimates]]
) -> kernels.LookupTables:
    structure = PooledFamilies(tuple(one.attribute for one in families), tuple(one.parents for one in families))
    trees, estimates = tee(terms)
    return compile_lookup_tables(
        schema, structure, class_counts, (tree for tree, _ in trees), (one for _, one in estimates)
    )


N_FOLDS = 3


def out_of_fold_scores(
    schema: Schema,
    rows: Chunk,
    ks: tuple[int, ...],
    seed: int,
    threads: int,
    advance: Advance,
    copies: Integers | None = None,
) -> Floats:
    """Compute out-of-fold scores, (n, n_classes) float64: the members' mean log scores of each row, learned from the
    other folds.

    Structures, counts and weights come from the other folds. Leaving a row out of the counts alone would be
    optimistic, because parents and weights were chosen with it. `ks` and `seed` as in `draw_ensemble_members`; `copies` as of `Levels`, if equal rows are copies;
    the result does not depend on the number of threads.
    """
    views, of_pairs = Views(schema), Views(schema, OF_PAIRS)
    fold = random_folds(rows.x, N_FOLDS, seed, are_copies=copies is not None)
    scores = np.zeros((rows.n_rows, schema.n_classes))
    few_parents = is_small_and_wide(rows.n_rows, schema.n_attributes)
    for number in range(N_FOLDS):
        advance(number, N_FOLDS)
        whole = rows.rows(fold != number)
        pairs = PairwiseCounts(of_pairs.schema)
        pairs.update(of_pairs.chunk(whole))
        members = draw_ensemble_members(pairs, views, ks, seed)
        families = FamilyCounts(views.schema, distinct_families(members))
        families.update(views.chunk(whole))
        # All copies of a row are in one fold, so that as many are left out with it here as in the table.
        of_whole = None if copies is None else copies[fold != number]
        fitted = fit_ensemble_members(
            families, members, views.chunk(whole), threads, few_parents=few_parents, copies=of_whole
        )
        held = views.chunk(rows.rows(fold == number))
        scores[fold == number] = new_row_log_scores(fitted.members, fitted.levels, families.class_counts, held, threads)
    return scores
