"""Tables of a compiled network, of few or of many classes, and what they answer."""

from __future__ import annotations

from learners.arrays import Codes, Floats
from learners.classifiers import kernels, many_kernels

Tables = kernels.LookupTables | many_kernels.ManyClassTables


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
