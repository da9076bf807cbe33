"""Fitting of large tables: the plain network, the choice among networks by left-out loss, and scores of all drawn rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import LookupTables
from learners.classifiers.lookup.look_up_tables import fill_class_log_joints, run_in_row_ranges
from learners.classifiers.structure import k_dependence_structure
from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.pairwise import PairCounts
from learners.counts.row_samples import DrawnRows
from learners.ensembles.cuts import member_parent_grouping_index
from learners.ensembles.fit import (
    FittedMember,
    Pool,
    Solved,
    fit_ensemble_members,
    fit_family_trees,
    leave_one_out_log_scores,
    log_softmax,
    max_member_rows_in_memory,
    member_log_terms,
    own_scores,
    prefix_log_probabilities,
)
from learners.ensembles.members import Member, limit_member_depths
from learners.ensembles.pool import (
    CompiledPool,
    compile_ensemble_pool,
    compile_ensemble_pool_tables,
    compile_left_out_tables,
)
from learners.ensembles.weights import (
    Rows,
    attribute_prefix_losses,
    fit_pool_temperature,
    fit_term_weights,
    leave_one_out_log_prior,
    mean_log_loss,
    representative_rows,
)
from learners.kernels.arrays import Floats, Integers, read_only_array
from learners.passes.engine import Advance
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views

# Tables of more rows: below, all networks and trees learn from at most so many drawn rows.
LARGE_ROWS = 50_000
# The share of the memory limit that drawn rows may take, each with its hash and count, and as many again in reserve.
MEMORY_SHARE, ROW_BYTES = 24, 16
MOST_KEPT, MOST_REPEATS = 20_000_000, 4
# The network that would be learned alone: SkDB by the MDL cut points.
PLAIN_K, WIDTH_COST = 5, 2.0
PLAIN = member_parent_grouping_index(0)
# Rows that choose among networks, and log probabilities that they may take.
DECIDING_ROWS, MOST_TERMS = 100_000, 1 << 24
# The pool of all networks is taken where a single one has a loss higher by more than this share.
WORTH = 0.001
BLOCK_ROWS = 1 << 17


def n_rows_kept(schema: Schema, memory: int) -> int:
    """Number of distinct rows that fit into their share of this many bytes, at least `LARGE_ROWS`."""
    n_bytes = (schema.n_attributes + 1) * np.dtype(schema.code_dtype).itemsize + ROW_BYTES
    return max(LARGE_ROWS, min(MOST_KEPT, memory // MEMORY_SHARE // n_bytes))


def n_rows_drawn(sample: DrawnRows) -> int:
    """Return the number of row occurrences to draw; at most `MOST_REPEATS` per distinct row on average."""
    return max(LARGE_ROWS, min(sample.n_distinct, MOST_REPEATS * sample.sample.hashes.size))


def plain_member(pairs: PairCounts, views: Views, drawn: Chunk, n_rows: int) -> Member:
    """Learn the structure of the plain kDB with `PLAIN_K` parents; its first parents are also those of every smaller k.

    `pairs` and rows use the views `PLAIN`. A family gets only as many parents as the number of rows supports.
    """
    structure = k_dependence_structure(pairs, PLAIN_K, WIDTH_COST)
    families = tuple(
        Family(views.of(attribute, PLAIN), tuple(views.of(parent, PLAIN) for parent in own))
        for attribute, own in zip(structure.order, structure.parents, strict=True)
    )
    return limit_member_depths(Member(structure, families), views.schema, drawn, n_rows)


class Large(NamedTuple):
    """Result of `fit_large_table`."""

    compiled: CompiledPool
    n_members: int
    # (n, n_classes) float64: log probabilities of all drawn rows, each left out, at the pool's temperature.
    scores: Floats
    temperature: float
    losses: dict[str, float]  # of deciding rows left out, by the networks
    chosen: str
    n_deciding: int

    @property
    def words(self) -> str:
        """Readable description of the chosen networks and the losses that decided."""
        losses = ", ".join(f"{name} {loss:.4f}" for name, loss in sorted(self.losses.items(), key=lambda one: one[1]))
        return (
            f"Networks: {self.chosen}, by the log loss of {self.n_deciding:,} rows, each left out in turn ({losses})."
        )


class _Way(NamedTuple):
    members: tuple[FittedMember, ...]
    scores: Floats  # (n_deciding, n_classes): each row left out
    loss: float  # at the best temperature


def fit_large_table(
    counts: FamilyCounts,
    members: Sequence[Member],
    plain: Member,
    views: Views,
    drawn: Chunk,
    copies: Integers | None,
    threads: int,
    advance: Advance,
) -> Large:
    """Fit the members and the plain network, choose by left-out loss, and compute leave-one-out scores of all drawn
    rows.

    `drawn` by the base schema of the views, with their `copies` as of `Levels`. The result does not depend on the number of
    threads.
    """
    n_classes = counts.class_counts.size
    assert drawn.y is not None

    def of_copies(which: Integers | slice) -> Integers | None:
        return None if copies is None else copies[which]

    n = min(drawn.n_rows, DECIDING_ROWS, MOST_TERMS // max(1, len(plain.families) * (PLAIN_K + 2) * n_classes))
    which, weights = representative_rows(drawn.y, counts.class_counts, max(1, n))
    deciding, of_deciding = views.chunk(drawn.rows(which)), of_copies(which)
    assert deciding.y is not None
    prior = leave_one_out_log_prior(counts.class_counts, deciding.y, 1 if of_deciding is None else of_deciding)
    rows = Rows(deciding.y, prior, weights)
    n = max_member_rows_in_memory(members, n_classes)
    which, weights = representative_rows(drawn.y, counts.class_counts, n)
    fitted = fit_ensemble_members(
        counts,
        members,
        views.chunk(drawn.rows(which)),
        threads,
        advance,
        frugal=True,
        n_fitted=which.size,
        weights=weights,
        copies=of_copies(which),
    )
    levels: Solved = dict(fitted.levels)
    ways = _plain_ways(counts, plain, levels, deciding, of_deciding, rows, threads)
    of_pool = _left_out_scores(counts, views, Pool(fitted.members, levels), deciding, of_deciding, threads)
    ways["ensemble"] = _way(fitted.members, of_pool, rows)
    single = min(ways, key=lambda name: ways[name].loss)
    best = min((name for name in ways if name != "ensemble"), key=lambda name: ways[name].loss)
    ways["all"] = _together(ways["ensemble"], ways[best], rows, threads)
    chosen = single if ways[single].loss <= (1.0 + WORTH) * ways["all"].loss else "all"
    way = ways[chosen]
    temperature = fit_pool_temperature(way.scores, rows)
    used = {family for one in way.members for family in one.member.families}
    pool = Pool(way.members, {family: tree for family, tree in levels.items() if family in used})
    del fitted, levels
    blocks = [slice(first, first + BLOCK_ROWS) for first in range(0, drawn.n_rows, BLOCK_ROWS)]
    of_blocks = []
    if copies is not None:
        of_blocks = [
            _own_scores_without_copies(pool, views.chunk(drawn.rows(some)), copies[some], threads) for some in blocks
        ]
    left_out = compile_left_out_tables(views.schema, counts.class_counts, pool) if copies is None else None
    compiled = compile_ensemble_pool(views.schema, counts.class_counts, pool)
    scores = np.empty((drawn.n_rows, n_classes))
    for number, some in enumerate(blocks):
        block = views.chunk(drawn.rows(some))
        if left_out is None:
            own = leave_one_out_log_scores(
                compiled.tables, counts.class_counts, of_blocks[number], block, threads, of_copies(some)
            )
        else:
            own = _scores(compiled.tables, left_out, counts.class_counts, block, threads)
        scores[some] = log_softmax(temperature * own)
    losses = {name: one.loss for name, one in ways.items()}
    return Large(compiled, len(way.members), scores, temperature, losses, chosen, deciding.n_rows)


def _plain_ways(
    counts: FamilyCounts,
    plain: Member,
    levels: Solved,
    deciding: Chunk,
    copies: Integers | None,
    rows: Rows,
    threads: int,
) -> dict[str, _Way]:
    """Evaluate NB, kDB-2, SkDB and weighted SkDB as single networks; adds their trees to `levels`."""
    depths = {family: levels[family].n_parents for family in plain.families if family in levels}
    lacking = [family for family in plain.families if depths.get(family, -1) < len(family.parents)]
    levels |= fit_family_trees(counts, lacking, threads)
    log_p = prefix_log_probabilities(plain, levels, deciding, rows.log_prior.shape[1], threads, copies)
    losses = attribute_prefix_losses(log_p, [len(family.parents) for family in plain.families], rows, threads)
    n_selected, k = divmod(int(losses.T.argmin()), losses.shape[0])
    m = len(plain.families)
    ways = {}
    for name, n_used, depth in (("nb", m, 0), ("kdb-2", m, 2), ("skdb", n_selected, k)):
        weights = (np.arange(m) < n_used).astype(np.float64)
        terms = member_log_terms(log_p, depth)
        both = np.tile(weights, 2)
        ways[name] = _way(
            (FittedMember(plain, depth, weights, weights),), rows.log_prior + np.einsum("rfc,f->rc", terms, both), rows
        )
    both = fit_term_weights(terms, rows, both, threads)
    weighted = FittedMember(plain, k, both[:m], both[m:])
    ways["weighted skdb"] = _way((weighted,), rows.log_prior + np.einsum("rfc,f->rc", terms, both), rows)
    return ways


def _way(members: tuple[FittedMember, ...], scores: Floats, rows: Rows) -> _Way:
    return _Way(members, scores, mean_log_loss(fit_pool_temperature(scores, rows) * scores, rows))


def _together(ensemble: _Way, plain: _Way, rows: Rows, threads: int) -> _Way:
    """Combine the ensemble and the plain network with weights fitted to the left-out loss."""
    terms = np.stack([ensemble.scores - rows.log_prior, plain.scores - rows.log_prior], axis=1).astype(np.float32)
    weights = fit_term_weights(terms, rows, np.array([0.5, 0.5]), threads)
    scores = rows.log_prior + np.einsum("rfc,f->rc", terms, weights)
    n = len(ensemble.members) + len(plain.members)
    # A pool takes the mean of its members.
    members = [
        replace(one, a=read_only_array(one.a * factor), b=read_only_array(one.b * factor))
        for way, weight in zip((ensemble, plain), weights, strict=True)
        for factor in [weight * n / len(way.members)]
        for one in way.members
    ]
    return _way(tuple(members), scores, rows)


def _left_out_scores(
    counts: FamilyCounts, views: Views, pool: Pool, rows: Chunk, copies: Integers | None, threads: int
) -> Floats:
    """Compute leave-one-out log scores of a pool for training rows in views, (n, n_classes)."""
    copy = Pool(pool.members, dict(pool.levels))  # whose trees compiling takes
    if copies is not None:
        own = _own_scores_without_copies(pool, rows, copies, threads)
        tables = compile_ensemble_pool_tables(views.schema, counts.class_counts, copy)
        return leave_one_out_log_scores(tables, counts.class_counts, own, rows, threads, copies)
    left_out = compile_left_out_tables(views.schema, counts.class_counts, copy)
    tables = compile_ensemble_pool(views.schema, counts.class_counts, copy).tables
    return _scores(tables, left_out, counts.class_counts, rows, threads)


def _own_scores_without_copies(pool: Pool, rows: Chunk, copies: Integers, threads: int) -> Floats:
    """Compute the mean of the members' terms for each row's own class, the row and its copies left out, (n,) float64.

    Tables cannot tell it: rows of one cell have different numbers of copies.
    """
    found = np.zeros(rows.n_rows)
    for one in pool.members:
        used = replace(one, member=one.member.with_parents(one.k))
        whole = zip(used.member.families, one.member.families, strict=True)
        levels = {family: pool.levels[longer].cut(one.k) for family, longer in whole}
        found += own_scores(used, levels, rows, threads, copies)
    return found / max(1, len(pool.members))


def _scores(tables: LookupTables, left_out: LookupTables, class_counts: Integers, rows: Chunk, threads: int) -> Floats:
    """Compute log scores (n, n_classes) from the tables, and each row's own class from the left-out tables."""
    assert rows.y is not None
    scores, own = np.empty((2, rows.n_rows, class_counts.size))

    def fill(first: int, last: int) -> None:
        fill_class_log_joints(tables, rows.x, first, last, scores)
        fill_class_log_joints(left_out, rows.x, first, last, own)

    run_in_row_ranges(rows.n_rows, threads, fill)
    n = np.asarray(class_counts, np.float64)
    log_prior = np.log((n - 1.0 + 1.0 / n.size) / (n.sum() + 1.0))
    at = np.arange(rows.n_rows), rows.y
    scores[at] = own[at] - left_out.log_prior[rows.y] + log_prior[rows.y]
    return scores
