"""Find the rows that a table lookup answers alone, and weigh nulls as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import hide_nulls, mark_unknown_and_null_rows, mix_answers
from learners.kernels.arrays import Codes, Floats, Integers, Uint8s, freeze_arrays, take_rows
from learners.schema import Schema

LACKS_PARENT, HAS_NULL = 1, 2

SURE, LIKELY = 0.95, 0.5
"""Nulls that are values with these probabilities, as look-ups tell it: then what they may hide is left out, or itself looked up."""


class LookUps(NamedTuple):
    """Answers of look-ups for rows with nulls that lack nothing else."""

    # (n, n_classes): with the nulls as values, and the mean of both readings where these are only likely to be values
    probabilities: Floats
    weights: Floats  # (n,): the probability that the nulls of the row are values
    # (n, n_classes) what `answer_known` begins with, for rows with hidden nulls that are not sure; None if it begins with nothing
    begun: Floats | None = None


class Completeness:
    """Finds the rows of a chunk that a table lookup alone cannot answer.

    `needed`: attributes without which the lookups of others are wrong: parents, and split attributes of trees;
    `used`: all attributes that the model reads.
    """

    def __init__(self, schema: Schema, needed: Sequence[int], used: Sequence[int]) -> None:
        self.sizes: Integers = schema.domain_sizes
        limits = np.full(schema.n_attributes, np.iinfo(np.uint16).max, np.uint16)
        limits[list(needed)] = self.sizes[list(needed)]
        nullable = np.array([schema.attributes[i].has_missing for i in range(schema.n_attributes)], np.bool_)
        self._used = np.zeros(schema.n_attributes, np.bool_)
        self._used[list(used)] = True
        nullable &= self._used
        self._limits, self.nullable = limits, nullable
        self._log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.sizes.size + 2)))])
        freeze_arrays(limits, nullable, self._used, self._log_factorial)

    def answers(
        self,
        x: Codes,
        look_up: Callable[[Codes], Floats],
        look_up_nulls: Callable[[Codes, Codes, Floats], LookUps],
        answer_known: Callable[[Codes, Floats | None], tuple[Floats, Floats]],
        log_evidence: Callable[[Codes], Floats],
    ) -> Floats:
        """Return class probabilities (n_rows, n_classes) of x (n_attributes, n_rows): complete rows by lookup, others
        with more work.

        A null is either a value, as in training, or hides a value for reasons independent of the row. The row itself
        decides: the result is the mean of both readings, weighted by the probability that each gives the row, with
        equal prior weights. If lookups already show that the nulls are values with probability `SURE`, only that
        reading is used; in a row that lacks nothing else, the other reading is looked up with `LIKELY` instead of
        being summed out.

        Given (n_attributes, m) codes, `look_up` returns the probabilities (m, n_classes) of complete rows,
        `answer_known` those of any rows with the log evidence (m,), and `log_evidence` the latter by lookups in one
        network, in which a missing parent ends the context. `look_up_nulls` also takes the codes (n_attributes, 2 m) of
        the rows and of the same with nulls hidden, side by side, and the log probabilities (m,) of hiding exactly
        these; it averages both readings where the nulls are `LIKELY` to be values.
        """
        marks = np.zeros(x.shape[1], np.uint8)
        mark_unknown_and_null_rows(x, self._limits, self.nullable, marks)
        if not marks.any():
            return look_up(x)
        parts = list[tuple[Integers, Floats]]()
        for mark, rows in _groups(marks):
            own = x if rows.size == marks.size else take_rows(x, rows)
            if not mark & HAS_NULL:
                parts.append((rows, answer_known(own, None)[0] if mark else look_up(own)))
                continue
            lacks = bool(mark & LACKS_PARENT)
            both, log_hidden = self._hide(own)
            begun = None
            if lacks:
                p, of_known = answer_known(own, None)
                looked_up = log_evidence(both)
                weights = weights_of_values(looked_up[: rows.size], looked_up[rows.size :], log_hidden)
            else:
                p, weights, begun = look_up_nulls(own, both, log_hidden)
            parts.append((rows, p))
            places = np.flatnonzero(weights < (SURE if lacks else LIKELY))
            if not places.size:
                continue
            mixed = p if places.size == rows.size else p[places]
            if lacks:
                hidden, evidence = answer_known(take_rows(both, rows.size + places), None)
                of_value = of_known[places]
            else:  # both readings side by side: they share most of what is read
                of_both: Codes = both if mixed is p else take_rows(both, np.concatenate([places, rows.size + places]))
                begun = None if begun is None else np.concatenate([mixed, begun[places]])
                hidden, evidence = answer_known(of_both, begun)
                of_value, hidden, evidence = evidence[: places.size], hidden[places.size :], evidence[places.size :]
            mix_answers(of_value, evidence, log_hidden[places], 2.0, 0.0, hidden, mixed, np.empty(places.size))
            if mixed is not p:
                p[places] = mixed
        if len(parts) == 1:
            return parts[0][1]
        out = np.empty((marks.size, parts[0][1].shape[1]))
        for rows, p in parts:
            out[rows] = p
        return out

    def _hide(self, x: Codes) -> tuple[Codes, Floats]:
        """Return the rows (n_attributes, n), beside them the same with their nulls marked as missing, and the log
        probabilities (n,) of hiding exactly these.
        """
        hidden, log_hidden = np.empty((x.shape[0], 2 * x.shape[1]), x.dtype), np.empty(x.shape[1])
        hide_nulls(x, self.sizes, self._used, self.nullable, self._log_factorial, hidden, log_hidden)
        hidden.setflags(write=False)
        return hidden, log_hidden


def weights_of_values(of_value: Floats, of_hidden: Floats, log_hidden: Floats) -> Floats:
    """Return the probability (n,) that the nulls of each row are values, given the log evidence (n,) of both readings and
    the log probabilities (n,) of hiding exactly these nulls.
    """
    nothing = np.empty((0, 0))
    return average_likely_rows(of_value, of_hidden, log_hidden, nothing, nothing)


def unsure_and_likely_rows(weights: Floats) -> tuple[Integers, Integers]:
    """Return the rows whose nulls are not `SURE` to be values, and those of them where they are `LIKELY` to be, given the
    weights (n,) of this reading.
    """
    unsure = np.flatnonzero(weights < SURE)
    return unsure, unsure[weights[unsure] >= LIKELY]


def average_likely_rows(of_value: Floats, of_hidden: Floats, log_hidden: Floats, hidden: Floats, p: Floats) -> Floats:
    """Return `weights_of_values`; where these are `LIKELY` and not `SURE`, average the answers p (n, n_classes), with nulls
    as values, with those of hidden nulls, in place.
    """
    weights = np.empty(log_hidden.size)
    mix_answers(of_value, of_hidden, log_hidden, SURE, LIKELY, hidden, p, weights)
    return weights


def _groups(marks: Uint8s) -> Iterator[tuple[int, Integers]]:
    """Yield each mark that occurs, and its rows."""
    if marks.size == 1:
        yield int(marks[0]), np.zeros(1, np.int64)
        return
    for mark in np.flatnonzero(np.bincount(marks)).tolist():
        yield mark, np.flatnonzero(marks == mark)
