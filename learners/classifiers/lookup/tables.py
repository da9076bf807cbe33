"""Tables of a compiled network, of few or of many classes, and what they answer."""

from __future__ import annotations

import numpy as np

from learners.classifiers.lookup import kernels, many_kernels
from learners.kernels.arrays import Codes, Floats, freeze

Tables = kernels.LookupTables | many_kernels.ManyClassTables

# The arrays of tables with entries for each attribute, and how many of them one attribute needs.
BY_ATTRIBUTE = {
    "attribute": 1,
    "n_values": 1,
    "parent_starts": 2,
    "value_starts": 1,
    "roots": 1,
    "dense_starts": 1,
    "hash_starts": 2,
    "hash_shifts": 1,
}


def of_attribute(tables: Tables, a: int) -> Tables:
    """Tables that answer by attribute a of `tables` alone: without the others, and without the prior."""
    one = {name: getattr(tables, name)[a : a + width] for name, width in BY_ATTRIBUTE.items() if name in tables._fields}
    no_prior = np.zeros(tables.log_prior.size)
    freeze(no_prior)  # as in a model, so that nothing is compiled again
    return tables._replace(**one, log_prior=no_prior)


def log_joints(tables: Tables, x: Codes, first: int, last: int, out: Floats) -> None:
    """Log P(class, attributes); an attribute whose value training never saw counts for no class.

    Parameters
    ----------
    tables : LookupTables or ManyClassTables
    x : (n_attributes, n) uint8 or uint16
    first, last : int
        Rows to answer.
    out : (n, n_classes) float64
        To be filled in these rows.
    """
    _answer(tables, x, first, last, False, out)


def probabilities(tables: Tables, x: Codes, first: int, last: int, out: Floats) -> None:
    """P(class | attributes) by log-sum-exp; parameters as those of `log_joints`."""
    _answer(tables, x, first, last, True, out)


def _answer(tables: Tables, x: Codes, first: int, last: int, is_normalized: bool, out: Floats) -> None:
    by = many_kernels if isinstance(tables, many_kernels.ManyClassTables) else kernels
    by.answer(tables, x, first, last, is_normalized, out)
