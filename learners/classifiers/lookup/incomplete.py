"""Rows that lack something: which they are, and how far a null is evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from learners.classifiers.lookup.incomplete_kernels import mark_rows
from learners.classifiers.lookup.kernels import normalize_rows
from learners.kernels.arrays import Codes, Floats, Integers, freeze, frozen
from learners.schema import Schema

LACKS_PARENT, HAS_NULL = 1, 2

Answer = Callable[[Codes], tuple[Floats, Floats]]


class Completeness:
    """Finds the rows of a chunk that a table look-up alone does not answer.

    `needed` are the attributes without which the look-ups of others are not right: parents, and what trees split on; `used`
    are all that the model looks at.
    """

    def __init__(self, schema: Schema, needed: Sequence[int], used: Sequence[int]) -> None:
        self.sizes: Integers = schema.domain_sizes
        limits = np.full(schema.n_attributes, np.iinfo(np.uint16).max, np.uint16)
        limits[list(needed)] = self.sizes[list(needed)]
        nullable = np.array([schema.attributes[i].has_missing for i in range(schema.n_attributes)], np.bool_)
        self._used = np.zeros(schema.n_attributes, np.bool_)
        self._used[list(used)] = True
        nullable &= self._used
        freeze(limits, nullable)
        self._limits, self.nullable = limits, nullable
        self._log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.sizes.size + 2)))])

    def answer_incomplete(self, x: Codes, answer: Answer, log_evidence: Callable[[Codes], Floats], out: Floats) -> None:
        """Answer the rows of x (n_attributes, n_rows) that lack something, in their places of `out` (n_rows, n_classes).

        A null is either a value, as in training, or hides a value for a reason that has nothing to do with the row.
        Which it is, the row itself tells: the answer is the mean of both, weighted by how probable each makes the row,
        and beforehand alike.

        `answer` gives of (n_attributes, m) codes the (m, n_classes) class probabilities, and the (m,) log probability
        of what is known; `log_evidence` the latter alone, of rows that lack nothing.
        """
        marks = np.zeros(x.shape[1], np.uint8)
        mark_rows(x, self._limits, self.nullable, marks)
        if not marks.any():
            return
        of_value = np.empty(x.shape[1])
        lacking, whole = np.flatnonzero(marks & LACKS_PARENT), np.flatnonzero(marks == HAS_NULL)
        if lacking.size:
            out[lacking], of_value[lacking] = answer(frozen(x[:, lacking]))
        if whole.size:
            of_value[whole] = log_evidence(frozen(x[:, whole]))
        with_null = np.flatnonzero(marks & HAS_NULL)
        if not with_null.size:
            return
        own = x[:, with_null]
        is_null = (own == 0) & self.nullable[:, np.newaxis]
        hidden, of_hidden = answer(frozen(np.where(is_null, self.sizes[:, np.newaxis], own).astype(own.dtype)))
        n, s = (own < self.sizes[:, np.newaxis])[self._used].sum(axis=0), is_null.sum(axis=0)
        log_odds = of_value[with_null] - of_hidden - self._log_hidden(s, n)
        weight = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))[:, np.newaxis]
        out[with_null] = weight * out[with_null] + (1 - weight) * hidden

    def _log_hidden(self, s: Integers, n: Integers) -> Floats:
        """Log probability that just these s of n values are hidden, where their share is as likely one as another: s! (n - s)! / (n + 1)!."""
        return self._log_factorial[s] + self._log_factorial[n - s] - self._log_factorial[n + 1]


def normalized(log_joint: Floats, log_prior: Floats) -> tuple[Floats, Floats]:
    """(n, n_classes) probabilities of log P(class, known), and (n,) log P(known).

    A row that no class can produce has the prior.
    """
    p, log_known = np.array(log_joint), np.empty(len(log_joint))
    normalize_rows(p, log_prior, log_known)
    return p, log_known
