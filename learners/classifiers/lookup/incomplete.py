"""Rows that lack something: which they are, and how far a null is evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from learners.classifiers.lookup.incomplete_kernels import mark_rows
from learners.classifiers.lookup.kernels import normalize_rows
from learners.kernels.arrays import Codes, Floats, Integers, freeze, frozen
from learners.schema import Schema

LACKS_PARENT, HAS_NULL = 1, 2

LookUp = Callable[[Codes], Floats]
Answer = Callable[[Codes], tuple[Floats, Floats]]
Evidence = Callable[[Codes], Floats]


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

    def answers(self, x: Codes, look_up: LookUp, answer_known: Answer, log_evidence: Evidence) -> Floats:
        """(n_rows, n_classes) class probabilities of x (n_attributes, n_rows): whole rows by looking up, others by more.

        A null is either a value, as in training, or hides a value for a reason that has nothing to do with the row.
        Which it is, the row itself tells: the answer is the mean of both, weighted by how probable each makes the row,
        and beforehand alike.

        Of (n_attributes, m) codes `look_up` gives the (m, n_classes) probabilities where nothing is lacking, `answer_known`
        those of any rows with the (m,) log probability of what is known, `log_evidence` the latter alone of whole rows.
        """
        marks = np.zeros(x.shape[1], np.uint8)
        mark_rows(x, self._limits, self.nullable, marks)
        if not marks.any():
            return look_up(x)
        lacking, whole = np.flatnonzero(marks & LACKS_PARENT), np.flatnonzero(marks == HAS_NULL)
        of_value = np.empty(x.shape[1])
        if lacking.size:
            found, of_value[lacking] = answer_known(frozen(x[:, lacking]))
            out = np.empty((x.shape[1], found.shape[1]))
            out[lacking] = found
            others = np.flatnonzero(marks & LACKS_PARENT == 0)
            if others.size:
                out[others] = look_up(frozen(x[:, others]))
        else:
            out = look_up(x)
        if whole.size:
            of_value[whole] = log_evidence(frozen(x[:, whole]))
        with_null = np.flatnonzero(marks & HAS_NULL)
        if not with_null.size:
            return out
        own = x[:, with_null]
        is_null = (own == 0) & self.nullable[:, np.newaxis]
        hidden, of_hidden = answer_known(frozen(np.where(is_null, self.sizes[:, np.newaxis], own).astype(own.dtype)))
        n, s = (own < self.sizes[:, np.newaxis])[self._used].sum(axis=0), is_null.sum(axis=0)
        log_odds = of_value[with_null] - of_hidden - self._log_hidden(s, n)
        weight = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))[:, np.newaxis]
        out[with_null] = weight * out[with_null] + (1 - weight) * hidden
        return out

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
