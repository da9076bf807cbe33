"""The BGe score: marginal likelihood of a node given its parents in a linear Gaussian network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers
from learners.orders.scores.bge_kernels import bge_scores
from learners.passes.engine import Advance


class Standard(NamedTuple):
    """How columns became those that were scored: (x - center) / spread."""

    # center, spread (d,) float64
    center: Floats
    spread: Floats

    @classmethod
    def none(cls, d: int) -> Standard:
        """The columns as they are."""
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
        """`alpha_w` and `t` for d columns. Raises InvalidParameter."""
        if not 0 < self.alpha_mu < np.inf:
            raise InvalidParameter("alpha_mu", self.alpha_mu, "use a number above zero")
        alpha_w = d + 2.0 if self.alpha_w is None else self.alpha_w
        if not d + 1 < alpha_w < np.inf:
            raise InvalidParameter("alpha_w", self.alpha_w, f"use more than {d + 1}, the number of columns and one")
        t = self.alpha_mu * (alpha_w - d - 1.0) / (self.alpha_mu + 1.0) if self.t is None else self.t
        if not 0 < t < np.inf:
            raise InvalidParameter("t", self.t, "use a number above zero")
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
        """(d, d) float64: R, the scale matrix of the posterior."""
        _, t = self.prior.resolved(self.d)
        n, alpha_mu = self.n_rows, self.prior.alpha_mu
        outer = n * alpha_mu / (n + alpha_mu) * np.outer(self.mean, self.mean)
        return np.asarray(t * np.eye(self.d) + self.scatter + outer)

    @property
    def degrees(self) -> float:
        """N + alpha_w - d: to it the number of parents and one is added."""
        return self.n_rows + self.prior.resolved(self.d)[0] - self.d

    def constants(self, most: int) -> Floats:
        """(most + 1,) float64: the terms of a log score that depend on the number of parents only."""
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
        """Of each node, (2^k,) float64: the log score of each set of its k candidates, -inf above `most` parents."""
        scores = []
        for node, own in enumerate(candidates):
            if advance is not None:
                advance(node, self.d)
            scores.append(self.family_scores(node, own, most))
        return scores

    def family_scores(self, node: int, candidates: Integers, most: int) -> Floats:
        """(2^k,) float64: the log score of a node given each set of k candidates, -inf above `most` parents."""
        k = candidates.size
        members = np.concatenate([[node], candidates]).astype(np.int64)
        scores = np.empty(1 << k)
        work = np.empty((k + 1, k + 1, k + 1))
        r = np.ascontiguousarray(self.scale[np.ix_(members, members)])
        bge_scores(r, self.constants(k), self.degrees, most, work, scores)
        return scores
