"""Rows that lack something: which they are, and how far a null is evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from learners.classifiers.lookup.incomplete_kernels import mark_rows
from learners.kernels.arrays import Codes, Floats, Integers, freeze, frozen
from learners.schema import Schema

LACKS_PARENT, HAS_NULL = 1, 2

Answer = Callable[[Codes], tuple[Floats, Floats]]


class Completeness:
    """Finds the rows of a chunk that a table look-up alone does not answer.

    Parameters
    ----------
    schema : Schema
    needed : sequence of int
        Attributes without which the look-ups of others are not right: parents, and what trees split on.
    used : sequence of int
        All attributes that the model looks at.
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

    def answer_incomplete(self, x: Codes, answer: Answer, out: Floats) -> None:
        """Answer the rows that lack something, in place of what stands there.

        A null is either a value, as in training, or hides a value for a reason that has nothing to do with the row. Which it is,
        the row itself tells: the answer is the mean of both, weighted by how probable each makes the row, and beforehand alike.

        Parameters
        ----------
        x : (n_attributes, n_rows) codes
        answer : callable
            Gives of (n_attributes, m) codes the (m, n_classes) class probabilities, and the (m,) log probability of what is known.
        out : (n_rows, n_classes) float64
        """
        marks = np.zeros(x.shape[1], np.uint8)
        mark_rows(x, self._limits, self.nullable, marks)
        if not marks.any():
            return
        rows = np.flatnonzero(marks)
        own = frozen(x[:, rows])
        probabilities, evidence = answer(own)
        with_null = np.flatnonzero(marks[rows] & HAS_NULL)
        if with_null.size:
            is_null = (own[:, with_null] == 0) & self.nullable[:, np.newaxis]
            hidden = np.where(is_null, self.sizes[:, np.newaxis], own[:, with_null]).astype(own.dtype)
            without, without_evidence = answer(frozen(hidden))
            n, s = (own[:, with_null] < self.sizes[:, np.newaxis])[self._used].sum(axis=0), is_null.sum(axis=0)
            # Where the share of hidden values is as likely one as another, s of n are hidden with probability s! (n - s)! / (n + 1)!.
            log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.sizes.size + 2)))])
            log_hidden = log_factorial[s] + log_factorial[n - s] - log_factorial[n + 1]
            log_odds = evidence[with_null] - without_evidence - log_hidden
            weight = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))[:, np.newaxis]
            probabilities[with_null] = weight * probabilities[with_null] + (1 - weight) * without
        out[rows] = probabilities


def normalized(log_joint: Floats, log_prior: Floats) -> tuple[Floats, Floats]:
    """(n, n_classes) probabilities of log P(class, known), and (n,) log P(known).

    A row that no class can produce has the prior.
    """
    largest = log_joint.max(axis=1, keepdims=True)
    is_impossible = largest == -np.inf
    shifted = np.where(is_impossible, log_prior, log_joint - np.where(is_impossible, 0.0, largest))
    terms = np.exp(shifted)
    total = terms.sum(axis=1, keepdims=True)
    return terms / total, np.where(is_impossible, -np.inf, largest + np.log(total))[:, 0]
