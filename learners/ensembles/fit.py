"""Fit an ensemble from counts: solve trees, select parents, weight terms and pool members."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.context_tree import context_tree_from_cells
from learners.classifiers.lookup.kernels import LookupTables
from learners.classifiers.lookup.look_up_tables import (
    fill_class_log_joints,
    run_in_row_ranges,
    smoothed_log_class_prior,
)
from learners.counts.family_counts import Family, FamilyCounts
from learners.ensembles.levels import Levels, truncate_context_tree_levels
from learners.ensembles.members import Member
from learners.ensembles.weights import (
    Rows,
    attribute_prefix_losses,
    fit_pool_temperature,
    fit_term_weights,
    leave_one_out_log_prior,
    mean_log_loss,
)
from learners.kernels.arrays import Float32s, Floats, Integers
from learners.passes.engine import Advance, ignore_progress
from learners.schema import Chunk

Solved = dict[Family, Levels]

# float32 numbers that the log probabilities of one member may take; fewer rows serve where there are many classes.
MOST_TERMS = 1 << 24
MOST_ROWS = 12_000
# Up to this number of rows, structures and weights are learned again in folds: above, the optimism of structures and
# weights that have seen a row is small, and learning them again is not. Such tables are wide from so many columns and
# cells on.
SMALL, WIDE, WIDE_CELLS = 5_000, 40, 50_000
# What frugal members spare; see `fit_ensemble_members`.
MORE_PARENTS, FEWEST_MEMBERS, PAYS = 1, 4, 0.003


def is_small_and_wide(n_rows: int, n_columns: int) -> bool:
    """Return True for a table of few rows and so many columns that members and trees have to spare what pays little."""
    return n_rows <= SMALL and n_columns >= WIDE and n_rows * n_columns >= WIDE_CELLS


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A member after selection and weighting."""

    member: Member
    k: int  # parents in use, the first ones of each attribute
    # a, b (m,) float64: weights of log P(x_i | y), and of what the parents add to it, in the structure's order.
    a: Floats
    b: Floats

    def family(self, index: int) -> Family:
        """Return an attribute's family with the parents in use."""
        whole = self.member.families[index]
        return Family(whole.attribute, whole.parents[: self.k])

    def weights(self, index: int) -> tuple[float, float]:
        """Return an attribute's weights of log P(x_i | y) and of its parents' contribution, zero without parents."""
        return float(self.a[index]), float(self.b[index]) if self.family(index).parents else 0.0

    @property
    def used(self) -> list[int]:
        """Return the attributes with a nonzero weight, as positions in the structure's order."""
        return [index for index in range(len(self.member.families)) if any(self.weights(index))]


@dataclass(frozen=True, eq=False)
class Pool:
    """Fitted members and the solved trees that they share."""

    members: tuple[FittedMember, ...]
    levels: Solved  # the solved tree of each family, by the family with all its parents


class Fitted(NamedTuple):
    """Result of `fit_ensemble_members`."""

    members: tuple[FittedMember, ...]
    levels: Solved  # the solved tree of each family, without the levels of parents that no member uses
    # (n, n_classes) float64: their mean log scores of the rows that weights are fitted to, each left out.
    scores: Floats
    rows: Rows  # those: as many of the drawn ones as fit in memory
    # (n_members, n_drawn or n) float64: of each drawn row the weighted terms of its own class, the row left out;
    # without a correction of the first n alone.
    own: Floats


def fit_family_trees(counts: FamilyCounts, families: Sequence[Family], threads: int) -> Solved:
    """Solve the context trees of families that are counted, possibly with further parents.

    The result does not depend on the number of threads.
    """
    sizes = counts.schema.domain_sizes
    place = {
        Family(whole.attribute, whole.parents[:k]): index
        for index, whole in enumerate(counts.families)
        for k in range(len(whole.parents))
    } | {whole: index for index, whole in enumerate(counts.families)}

    def solve(family: Family) -> Levels:
        tree = context_tree_from_cells(*counts.cells(place[family]), int(sizes[family.attribute]))
        return Levels.solved(truncate_context_tree_levels(tree, len(family.parents)), sizes[list(family.parents)])

    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="levels") as pool:
        return dict(zip(families, pool.map(solve, families), strict=True))


def prefix_log_probabilities(
    member: Member,
    levels: Solved,
    rows: Chunk,
    n_classes: int,
    threads: int,
    copies: Integers | None = None,
    *,
    leave_out: bool = True,
) -> Float32s:
    """Compute log probabilities of each attribute given its first 0 to k parents, by default leaving each row out.

    (n, m, k + 1, n_classes) float32; of each row's own class alone if `n_classes` is 1. `leave_out` and `copies` as of
    `Levels.log_probabilities`.
    """
    k = max((len(family.parents) for family in member.families), default=0)
    log_p = np.empty((rows.n_rows, len(member.families), k + 1, n_classes), np.float32)

    def fill(index: int) -> None:
        family = member.families[index]
        depth = len(family.parents)
        levels[family].log_probabilities(family, rows, log_p[:, index, : depth + 1], leave_out, copies)
        log_p[:, index, depth + 1 :] = log_p[:, index, depth : depth + 1]

    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="levels") as pool:
        list(pool.map(fill, range(len(member.families))))
    return log_p


def member_log_terms(log_p: Float32s, k: int) -> Float32s:
    """Return the log terms of a member, (n, 2m, n_classes) float32: log P(x_i | y) and the contribution of the first k
    parents.
    """
    alone = log_p[:, :, 0]
    return np.ascontiguousarray(np.concatenate([alone, log_p[:, :, min(k, log_p.shape[2] - 1)] - alone], axis=1))


def fit_ensemble_members(
    counts: FamilyCounts,
    members: Sequence[Member],
    drawn: Chunk,
    threads: int,
    advance: Advance = ignore_progress,
    *,
    frugal: bool = False,
    few_parents: bool = False,
    has_correction: bool = False,
    n_fitted: int | None = None,
    weights: Floats | None = None,
    copies: Integers | None = None,
) -> Fitted:
    """Solve the trees of each member, select parents and fit weights; the result does not depend on the number of
    threads.

    The drawn rows, by views, are among those that were counted. If `frugal`, members of one table, which select alike,
    spare what pays little: those after the first have at most `MORE_PARENTS` more parents than it selects, and there
    are no more once two of them lower the loss of rows left out by less than a share of `PAYS`. With `few_parents`, they
    have at most `MORE_PARENTS` more parents, too, unless the first selects all that it may have. With `has_correction`,
    a correction will ask for the scores of all drawn rows. Weights are fitted to the first `n_fitted` of them, by
    default as many as fit in memory; `weights` as of `Rows`, `copies` of the drawn rows as of `Levels`.
    """
    n_classes = counts.class_counts.size
    n = n_fitted or min(drawn.n_rows, max_member_rows_in_memory(members, n_classes))
    chosen = drawn.rows(slice(0, n))
    assert chosen.y is not None
    with_chosen, with_others = (None, None) if copies is None else (copies[:n], copies[n:])
    prior = leave_one_out_log_prior(counts.class_counts, chosen.y, 1 if with_chosen is None else with_chosen)
    rows = Rows(chosen.y, prior, weights)
    pooled = np.zeros((n, n_classes))
    others = drawn.rows(slice(n, None if has_correction else n))
    fitted: list[FittedMember] = []
    own: list[Floats] = []
    levels: Solved = {}
    losses: list[float] = []
    for number, whole in enumerate(members):
        advance(number, len(members))
        is_capped = bool(fitted) and (frugal or (few_parents and fitted[0].k < fitted[0].member.most_parents))
        member = whole.with_parents(fitted[0].k + MORE_PARENTS) if is_capped else whole
        depths = {family: levels[family].n_parents for family in member.families if family in levels}
        lacking = [family for family in member.families if depths.get(family, -1) < len(family.parents)]
        solved = fit_family_trees(counts, lacking, threads)
        log_p = prefix_log_probabilities(member, levels | solved, chosen, n_classes, threads, with_chosen)
        one, scores = _fit_member(member, log_p, rows, threads)
        pooled += scores
        of_rows = (scores - rows.log_prior)[np.arange(n), rows.y]
        of_others = own_scores(one, levels | solved, others, threads, with_others)
        own.append(np.concatenate([of_rows, of_others]))
        fitted.append(one)
        levels |= {family: tree.cut(max(one.k, depths.get(family, 0))) for family, tree in solved.items()}
        if frugal:
            mean = pooled / len(fitted)
            losses.append(mean_log_loss(fit_pool_temperature(mean, rows) * mean, rows))
            if len(losses) >= FEWEST_MEMBERS and losses[-1] > (1.0 - PAYS) * losses[-3]:
                break
    return Fitted(tuple(fitted), levels, pooled / max(1, len(fitted)), rows, np.stack(own))


def max_member_rows_in_memory(members: Sequence[Member], n_classes: int) -> int:
    """Return the number of rows whose log probabilities fit in memory for any member."""
    widest = max((len(member.families) * 7 * n_classes for member in members), default=1)
    return max(1, min(MOST_ROWS, MOST_TERMS // max(1, widest)))


def _fit_member(member: Member, log_p: Float32s, rows: Rows, threads: int) -> tuple[FittedMember, Floats]:
    """Fit one member. Returns the member and its log scores of the rows, (n, n_classes)."""
    m = len(member.families)
    losses = attribute_prefix_losses(log_p, [len(family.parents) for family in member.families], rows, threads)
    n_selected, k = divmod(int(losses.T.argmin()), losses.shape[0])
    terms = member_log_terms(log_p, k)
    start = np.tile((np.arange(m) < n_selected).astype(np.float64), 2)
    weights = fit_term_weights(terms, rows, start, threads)
    scores = rows.log_prior + np.einsum("rfc,f->rc", terms, weights)
    return FittedMember(member, k, weights[:m], weights[m:]), scores


def own_scores(one: FittedMember, levels: Solved, rows: Chunk, threads: int, copies: Integers | None = None) -> Floats:
    """Sum the weighted terms of each row's own class, leaving the row out, (n,) float64; `copies` as of `Levels`."""
    weights, block = np.concatenate([one.a, one.b]), max_member_rows_in_memory([one.member], 1)
    parts = [np.empty(0)]
    for first in range(0, rows.n_rows, block):
        some = slice(first, first + block)
        of_some = None if copies is None else copies[some]
        log_p = prefix_log_probabilities(one.member, levels, rows.rows(some), 1, threads, of_some)
        parts.append(np.einsum("rfc,f->r", member_log_terms(log_p, one.k), weights))
    return np.concatenate(parts)


def new_row_log_scores(
    fitted: Sequence[FittedMember], levels: Solved, class_counts: Integers, rows: Chunk, threads: int
) -> Floats:
    """Compute the members' mean log scores of rows that they have not learned, (n, n_classes) float64; rows by views.

    The compiled pool would give the same, but to compile it takes longer than to look up a few thousand rows here.
    """
    scores = np.zeros((rows.n_rows, class_counts.size))
    block = max_member_rows_in_memory([one.member for one in fitted], class_counts.size)
    for one in fitted:
        weights = np.concatenate([one.a, one.b])
        for first in range(0, rows.n_rows, block):
            some = rows.rows(slice(first, first + block))
            log_p = prefix_log_probabilities(one.member, levels, some, class_counts.size, threads, leave_out=False)
            scores[first : first + block] += np.einsum("rfc,f->rc", member_log_terms(log_p, one.k), weights)
    return np.asarray(smoothed_log_class_prior(class_counts) + scores / len(fitted))


def leave_one_out_log_scores(
    tables: LookupTables,
    class_counts: Integers,
    own: Floats,
    rows: Chunk,
    threads: int,
    copies: Integers | None = None,
) -> Floats:
    """Compute log scores of training rows, (n, n_classes); each row is left out of its own class, the only score that
    this changes.

    Tables and class counts are of the pool, rows by views; `own` (n,) float64 is `Fitted.own` of the rows, the mean of
    the pool's members, `copies` as of `Levels`.
    """
    assert rows.y is not None
    scores = np.empty((rows.n_rows, class_counts.size))
    run_in_row_ranges(
        rows.n_rows, threads, lambda first, last: fill_class_log_joints(tables, rows.x, first, last, scores)
    )
    n = np.asarray(class_counts, np.float64)
    left = n[rows.y] - (1.0 if copies is None else copies)
    scores[np.arange(rows.n_rows), rows.y] = np.log((left + 1.0 / n.size) / (n.sum() + 1.0)) + own
    return scores


def log_softmax(scores: Floats) -> Floats:
    """Normalize log scores (n, n_classes) to log probabilities."""
    largest = scores.max(axis=1, keepdims=True)
    return np.asarray(scores - largest - np.log(np.exp(scores - largest).sum(axis=1, keepdims=True)))
