"""Marginal likelihoods of a node given its parents: BDeu for nominal nodes, BGe in a linear Gaussian network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from learners.counts.distinct_rows import DistinctRows
from learners.errors import InvalidParameter, LearnerError
from learners.kernels.arrays import Codes, Floats, Integers, Mask, Uint64s, freeze_arrays
from learners.orders.scores.kernels import add_column_set_counts, bdeu_potentials, bge_scores, sparse_bdeu_potential
from learners.passes.engine import Advance

# Bytes of the distinct rows that a model of nominal columns keeps.
MOST_ROW_BYTES = 1 << 24
# Cells of the tables that are counted together.
TABLE_CELLS = 1 << 22
# Uint64s with more combinations than this are counted in dense tables only while they are fewer than four times the rows.
DENSE_CELLS = 1 << 12


class TooManyCombinations(LearnerError, ValueError):
    """Raised if a set of columns has too many value combinations to count while the rows are in files."""


@dataclass(frozen=True)
class KeptRows:
    """Distinct rows stored in a model, with the interface of `DistinctRows` in memory."""

    x: Codes  # (d, n) uint8 or uint16
    counts: Integers  # (n,) int64

    is_in_memory = True

    def __post_init__(self) -> None:
        freeze_arrays(self.x, self.counts)

    @property
    def n_distinct(self) -> int:
        """Number of distinct rows."""
        return int(self.counts.size)

    def blocks(self) -> Iterator[tuple[Codes, Integers]]:
        """Yield all rows as one block."""
        yield self.x, self.counts


@dataclass(frozen=True)
class BDeu:
    """The BDeu score of one table.

    A log score is the difference of two potentials: h(node and parents) - h(parents), where h(U) is the sum over the
    combinations of values of U of lgamma(count + a) - lgamma(a), and a is the equivalent sample size divided by the number
    of combinations there could be.

    References: Heckerman, Geiger, Chickering (1995), Learning Bayesian networks, section 5; Buntine (1991).
    """

    rows: DistinctRows | KeptRows
    sizes: Integers  # (d,) int64: of the columns' domains
    ess: float = 1.0  # equivalent sample size

    def kept_rows(self) -> KeptRows | None:
        """Return the rows to store in a model; None if they are too large."""
        if not self.rows.is_in_memory or self.sizes.size * self.rows.n_distinct * 2 > MOST_ROW_BYTES:
            return None
        ((x, counts),) = self.rows.blocks()
        return KeptRows(np.array(x), np.array(counts))

    def tables(self, candidates: Sequence[Integers], most: int, advance: Advance | None = None) -> list[Floats]:
        """Return for each node the log score of each set of its k candidates, (2^k,) float64, -inf above `most`
        parents.
        """
        own = [_sets_of(of_node, most) for of_node in candidates]
        with_node = [sets[possible] | np.uint64(1 << node) for node, (sets, possible) in enumerate(own)]
        needed = np.unique(np.concatenate([sets[possible] for sets, possible in own] + with_node))
        h = self.potentials(needed, advance)
        scores = []
        for (sets, possible), larger in zip(own, with_node, strict=True):
            table = np.full(sets.size, -np.inf)
            table[possible] = h[np.searchsorted(needed, larger)] - h[np.searchsorted(needed, sets[possible])]
            scores.append(table)
        return scores

    def potentials(self, sets: Uint64s, advance: Advance | None = None) -> Floats:
        """Return h of each set of columns (s,), ascending, (s,) float64. Raises TooManyCombinations."""
        log_cells = np.zeros(sets.size)
        for i, size in enumerate(self.sizes.tolist()):
            log_cells += np.log(size) * ((sets >> np.uint64(i)) & np.uint64(1))
        dense = np.exp(log_cells) <= max(DENSE_CELLS, min(TABLE_CELLS, 4 * self.rows.n_distinct)) * (1 + 1e-9)
        h = np.empty(sets.size)
        h[dense] = self._dense(sets[dense], log_cells[dense], advance)
        if not dense.all():
            h[~dense] = self._sparse(sets[~dense], log_cells[~dense], advance)
        return h

    def _dense(self, sets: Uint64s, log_cells: Floats, advance: Advance | None) -> Floats:
        """Compute potentials by tables of all combinations, as many sets at a time as `TABLE_CELLS` allows."""
        n_cells = np.rint(np.exp(log_cells)).astype(np.int64)
        h = np.empty(sets.size)
        first = 0
        while first < sets.size:
            if advance is not None:
                advance(first, sets.size)
            within = np.cumsum(n_cells[first:])
            last = first + max(1, int(np.searchsorted(within, TABLE_CELLS, side="right")))
            starts = np.concatenate([[0], within[: last - first]])
            tables = np.zeros(int(starts[-1]), np.int64)
            for x, weights in self.rows.blocks():
                add_column_set_counts(
                    x.astype(np.uint16, copy=False), weights, self.sizes, sets[first:last], starts, tables
                )
            bdeu_potentials(starts, tables, self.ess / n_cells[first:last], h[first:last])
            first = last
        return h

    def _sparse(self, sets: Uint64s, log_cells: Floats, advance: Advance | None) -> Floats:
        """Compute potentials by hashing the observed combinations, one set after the other."""
        if not self.rows.is_in_memory:
            raise TooManyCombinations(
                f"{int(np.bitwise_count(sets[0]))} columns have {np.exp(log_cells[0]):.3g} combinations of values, and the distinct rows "
                "do not fit into memory. Lower max_parents or max_values, or raise FEWPASS_MEMORY."
            )
        ((x, weights),) = self.rows.blocks()
        x = x.astype(np.uint16, copy=False)
        n = weights.size
        slots = 1 << max(4, int(2 * n - 1).bit_length())
        labels, counts = np.empty(n, np.int64), np.empty(max(1, n), np.int64)
        keys, values = np.empty(slots, np.int64), np.empty(slots, np.int64)
        h = np.empty(sets.size)
        for j, (one, log) in enumerate(zip(sets.tolist(), log_cells.tolist(), strict=True)):
            if advance is not None and j % 256 == 0:
                advance(j, sets.size)
            columns = np.array([i for i in range(self.sizes.size) if (one >> i) & 1], np.int64)
            h[j] = sparse_bdeu_potential(x, weights, columns, self.ess * np.exp(-log), labels, keys, values, counts)
        return h


def _sets_of(candidates: Integers, most: int) -> tuple[Uint64s, Mask]:
    """Return every set of candidates as bits of all columns, in index order, and which are small enough."""
    sets = np.zeros(1, np.uint64)
    for candidate in candidates.tolist():
        sets = np.concatenate([sets, sets | np.uint64(1 << candidate)])
    return sets, np.bitwise_count(sets) <= most


class Standard(NamedTuple):
    """Standardization of the columns: (x - center) / spread."""

    # center, spread (d,) float64
    center: Floats
    spread: Floats

    @classmethod
    def none(cls, d: int) -> Standard:
        """Return the identity standardization."""
        return cls(np.zeros(d), np.ones(d))


@dataclass(frozen=True)
class BGePrior:
    """The normal-Wishart prior: mean zero, scale matrix t I.

    References: Kuipers, Moffa, Heckerman (2014), section 2.
    """

    alpha_mu: float = 1.0  # rows that the prior mean stands for
    alpha_w: float | None = None  # degrees of freedom of the Wishart distribution, more than d + 1; None is d + 2
    t: float | None = None  # scale; None is alpha_mu (alpha_w - d - 1) / (alpha_mu + 1), which is 1/2 by default

    def resolved(self, d: int) -> tuple[float, float]:
        """Return `alpha_w` and `t` for d columns. Raises InvalidParameter."""
        if not 0 < self.alpha_mu < np.inf:
            raise InvalidParameter("alpha_mu", self.alpha_mu, "a number above zero")
        alpha_w = d + 2.0 if self.alpha_w is None else self.alpha_w
        if not d + 1 < alpha_w < np.inf:
            raise InvalidParameter("alpha_w", self.alpha_w, f"more than {d + 1}, the number of columns plus one")
        t = self.alpha_mu * (alpha_w - d - 1.0) / (self.alpha_mu + 1.0) if self.t is None else self.t
        if not 0 < t < np.inf:
            raise InvalidParameter("t", self.t, "a number above zero")
        return alpha_w, t


@dataclass(frozen=True)
class BGe:
    """The BGe score of one table.

    References: Kuipers, Moffa, Heckerman (2014), Addendum on the scoring of Gaussian directed acyclic graphical models,
    section 2 and equation (6).
    """

    n_rows: int
    mean: Floats  # (d,) float64: of the columns
    scatter: Floats  # (d, d) float64: sums over rows of products of deviations from the mean
    prior: BGePrior = BGePrior()

    @property
    def d(self) -> int:
        """Number of columns."""
        return int(self.mean.size)

    @property
    def scale(self) -> Floats:
        """Scale matrix R of the posterior, (d, d) float64."""
        _, t = self.prior.resolved(self.d)
        n, alpha_mu = self.n_rows, self.prior.alpha_mu
        outer = n * alpha_mu / (n + alpha_mu) * np.outer(self.mean, self.mean)
        return np.asarray(t * np.eye(self.d) + self.scatter + outer)

    @property
    def degrees(self) -> float:
        """N + alpha_w - d; add the number of parents and one for the degrees of freedom."""
        return self.n_rows + self.prior.resolved(self.d)[0] - self.d

    def constants(self, most: int) -> Floats:
        """Return the terms of a log score that depend only on the number of parents, (most + 1,) float64."""
        alpha_w, t = self.prior.resolved(self.d)
        n_parents = np.arange(most + 1)
        before = alpha_w - self.d
        return np.asarray(
            -self.n_rows / 2 * np.log(np.pi)
            + 0.5 * np.log(self.prior.alpha_mu / (self.n_rows + self.prior.alpha_mu))
            + scipy.special.gammaln((self.n_rows + before + n_parents + 1) / 2)
            - scipy.special.gammaln((before + n_parents + 1) / 2)
            + (before + 2 * n_parents + 1) / 2 * np.log(t)
        )

    def tables(self, candidates: Sequence[Integers], most: int, advance: Advance | None = None) -> list[Floats]:
        """Return for each node the log score of each set of its k candidates, (2^k,) float64, -inf above `most`
        parents.
        """
        scores = []
        for node, own in enumerate(candidates):
            if advance is not None:
                advance(node, self.d)
            scores.append(self.family_scores(node, own, most))
        return scores

    def family_scores(self, node: int, candidates: Integers, most: int) -> Floats:
        """Return the log score of a node given each set of k candidates, (2^k,) float64, -inf above `most` parents."""
        k = candidates.size
        members = np.concatenate([[node], candidates]).astype(np.int64)
        scores = np.empty(1 << k)
        work = np.empty((k + 1, k + 1, k + 1))
        r = np.ascontiguousarray(self.scale[np.ix_(members, members)])
        bge_scores(r, self.constants(k), self.degrees, most, work, scores)
        return scores
