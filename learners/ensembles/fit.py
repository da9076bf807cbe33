"""From counts to members: trees solved, parents selected, terms weighted, members pooled."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from learners.classifiers.estimates.context_tree import context_tree_from_cells
from learners.counts.families.family_counts import Family, FamilyCounts
from learners.ensembles.lookup.levels import Levels, with_parents
from learners.ensembles.members import Member
from learners.ensembles.weights import (
    Rows,
    fitted_temperature,
    fitted_weights,
    left_out_prior,
    mean_log_loss,
    prefix_losses,
)
from learners.kernels.arrays import Float32s, Floats, Integers
from learners.passes.engine import Advance, unheard
from learners.schema import Chunk

Solved = dict[Family, Levels]

# float32 numbers that the log probabilities of one member may take; fewer rows serve where there are many classes.
MOST_TERMS = 1 << 26
MOST_ROWS = 12_000
# What frugal members spare; see `fit_members`.
MORE_PARENTS, FEWEST_MEMBERS, PAYS = 1, 4, 0.003


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A member after selection and weighting.

    Parameters
    ----------
    member : Member
    k : int
        Parents in use, the first ones of each attribute.
    n_selected : int
        Attributes that the selection kept; the weights of the others start at zero.
    a, b : (m,) float64
        Weights of log P(x_i | y), and of what the parents add to it, in the structure's order.
    mean_loss : (largest k + 1, m + 1) float64
        Squared losses of the selection.
    """

    member: Member
    k: int
    n_selected: int
    a: Floats
    b: Floats
    mean_loss: Floats

    def family(self, index: int) -> Family:
        """The family of an attribute with the parents in use."""
        whole = self.member.families[index]
        return Family(whole.attribute, whole.parents[: self.k])


@dataclass(frozen=True, eq=False)
class Pool:
    """Members and what belongs to all of them.

    Parameters
    ----------
    members : tuple of FittedMember
    temperature : float
    levels : dict
        The solved tree of each family.
    """

    members: tuple[FittedMember, ...]
    temperature: float
    levels: Solved


def solved_trees(counts: FamilyCounts, families: Sequence[Family], threads: int) -> Solved:
    """The solved trees of families, each of which is counted, maybe with more parents behind its own.

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
        return Levels.solved(with_parents(tree, len(family.parents)), sizes[list(family.parents)])

    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="levels") as pool:
        return dict(zip(families, pool.map(solve, families), strict=True))


def log_probabilities(
    member: Member, levels: Solved, rows: Chunk, n_classes: int, *, leave_out: bool, threads: int
) -> Float32s:
    """(n, m, k + 1, n_classes) float32: of each attribute of the order given its first 0 to k parents; see `Levels`."""
    k = max((len(family.parents) for family in member.families), default=0)
    log_p = np.empty((rows.n_rows, len(member.families), k + 1, n_classes), np.float32)

    def fill(index: int) -> None:
        family = member.families[index]
        depth = len(family.parents)
        levels[family].log_probabilities(family, rows, log_p[:, index, : depth + 1], leave_out)
        log_p[:, index, depth + 1 :] = log_p[:, index, depth : depth + 1]

    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="levels") as pool:
        list(pool.map(fill, range(len(member.families))))
    return log_p


def terms_of(log_p: Float32s, k: int) -> Float32s:
    """(n, 2m, n_classes) float32: log P(x_i | y), and what the first k parents add to it."""
    alone = log_p[:, :, 0]
    return np.ascontiguousarray(np.concatenate([alone, log_p[:, :, min(k, log_p.shape[2] - 1)] - alone], axis=1))


def fit_members(
    counts: FamilyCounts,
    members: Sequence[Member],
    drawn: Chunk,
    threads: int,
    advance: Advance = unheard,
    *,
    frugal: bool = False,
) -> tuple[tuple[FittedMember, ...], Solved, Floats, Rows]:
    """Solve the trees of each member, select and weight.

    Parameters
    ----------
    counts : FamilyCounts
        Of the members' families.
    members : sequence of Member
    drawn : Chunk
        Rows by views, among those that were counted.
    threads : int
        The result does not depend on it.
    advance : callable, optional
    frugal : bool
        Whether members of one table, which select alike, spare what pays little: those after the first have at most
        `MORE_PARENTS` more parents than it selects, and there are no more once two of them lower the loss of rows left out by
        less than a share of `PAYS`.

    Returns
    -------
    members : tuple of FittedMember
    levels : dict
        The solved tree of each family.
    scores : (n, n_classes) float64
        Their mean log scores of the rows in use, each left out.
    rows : Rows
        In use: as many of those drawn as fit in memory.
    """
    n_classes = counts.class_counts.size
    n = min(drawn.n_rows, rows_at_once(members, n_classes))
    chosen = drawn.rows(slice(0, n))
    assert chosen.y is not None
    rows = Rows(chosen.y, left_out_prior(counts.class_counts, chosen.y))
    pooled = np.zeros((n, n_classes))
    fitted: list[FittedMember] = []
    levels: Solved = {}
    losses: list[float] = []
    for number, whole in enumerate(members):
        advance(number, len(members))
        member = whole.with_parents(fitted[0].k + MORE_PARENTS) if frugal and fitted else whole
        levels |= solved_trees(counts, [family for family in member.families if family not in levels], threads)
        log_p = log_probabilities(member, levels, chosen, n_classes, leave_out=True, threads=threads)
        one, scores = _fit_member(member, log_p, rows, threads)
        pooled += scores
        fitted.append(one)
        if frugal:
            mean = pooled / len(fitted)
            losses.append(mean_log_loss(fitted_temperature(mean, rows) * mean, rows))
            if len(losses) >= FEWEST_MEMBERS and losses[-1] > (1.0 - PAYS) * losses[-3]:
                break
    return tuple(fitted), levels, pooled / max(1, len(fitted)), rows


def rows_at_once(members: Sequence[Member], n_classes: int) -> int:
    """For how many rows the log probabilities of any member fit in memory."""
    widest = max((len(member.families) * 7 * n_classes for member in members), default=1)
    return max(1, min(MOST_ROWS, MOST_TERMS // max(1, widest)))


def _fit_member(member: Member, log_p: Float32s, rows: Rows, threads: int) -> tuple[FittedMember, Floats]:
    """The member, and its log scores (n, n_classes) of the rows."""
    m = len(member.families)
    losses = prefix_losses(log_p, [len(family.parents) for family in member.families], rows, threads)
    n_selected, k = divmod(int(losses.T.argmin()), losses.shape[0])
    terms = terms_of(log_p, k)
    start = np.tile((np.arange(m) < n_selected).astype(np.float64), 2)
    weights = fitted_weights(terms, rows, start, threads)
    scores = rows.log_prior + np.einsum("rfc,f->rc", terms, weights)
    return FittedMember(member, k, n_selected, weights[:m], weights[m:], losses), scores


def member_scores(
    members: Sequence[FittedMember],
    levels: Solved,
    class_counts: Integers,
    rows: Chunk,
    *,
    leave_out: bool,
    threads: int,
) -> Floats:
    """(n, n_classes) mean log scores of rows by views, a block of rows at a time; counted rows may be left out."""
    n_classes = class_counts.size
    block = rows_at_once([one.member for one in members], n_classes)
    scores = np.zeros((rows.n_rows, n_classes))
    n = np.asarray(class_counts, np.float64)
    shares = np.log((n + 1.0 / n_classes) / (n.sum() + 1.0))
    for first in range(0, rows.n_rows, block):
        part = rows.rows(slice(first, first + block))
        log_prior = left_out_prior(class_counts, part.y) if leave_out and part.y is not None else shares
        for one in members:
            log_p = log_probabilities(one.member, levels, part, n_classes, leave_out=leave_out, threads=threads)
            weights = np.concatenate([one.a, one.b])
            scores[first : first + block] += log_prior + np.einsum("rfc,f->rc", terms_of(log_p, one.k), weights)
    return scores / max(1, len(members))


def log_softmax(scores: Floats) -> Floats:
    """Log probabilities of log scores (n, n_classes)."""
    largest = scores.max(axis=1, keepdims=True)
    return np.asarray(scores - largest - np.log(np.exp(scores - largest).sum(axis=1, keepdims=True)))
