"""Missing values of rows, filled from their distribution given what the rows have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence
from learners.kernels.arrays import Array, Floats, Integers, Mask
from learners.models.query import How

# Marginal distributions of so many values are made at a time.
MOST_AT_A_TIME = 1 << 21


class Answering(Protocol):
    """What answers for the rows: a circuit, or the draws of a posterior over circuits."""

    @property
    def circuit(self) -> Circuit:
        """Its structure."""

    def row_logs(self, x: Array) -> Floats:
        """(n_rows,) log probability (density) of each row."""

    def row_marginals(self, x: Array, variables: Sequence[int]) -> list[Floats]:
        """(n_rows, n_values) of each discrete variable by itself."""

    def row_means(self, x: Array, variables: Sequence[int]) -> Floats:
        """(n_rows, len(variables)) expectation of each numeric variable."""

    def row_peaks(self, x: Array, v: int) -> Floats:
        """(n_peaks, n_rows) where densities of a numeric variable are highest, given each row."""

    def row_draws(self, x: Array, n: int, seed: int, numbers: Integers) -> Floats:
        """(n_rows, n, n_variables) drawn given each row."""


def filled(
    model: Answering,
    x: Array,
    is_missing: Mask,
    how: How,
    *,
    nameable: Sequence[Mask],
    seed: int = 0,
    first_row: int = 0,
    n_draws: int = 1,
) -> Floats:
    """Values for the missing cells of rows.

    Parameters
    ----------
    x : (n_variables, n_rows) float64 or integers
        What is missing is not observed here, either: NaN, or -1 of a discrete variable.
    is_missing : (n_variables, n_rows) bool
        The cells to fill.
    how : "mode", "mean" or "draw"
        - mode: the most probable value of the cell by itself given the row; of a number the peak of one of its densities, the
          one at which the row is most probable.
        - mean: the expectation of a number; of a discrete variable the mode.
        - draw: all missing cells of a row together from their joint distribution.
    nameable : sequence of (n_values,) bool, one for each variable
        Which codes a cell may be filled with: one for many rare values has no value of its own. Not read of numbers.
    seed : int
        Of draws. A draw depends on the seed, the row's number and its own.
    first_row : int
        The number of the first row.
    n_draws : int
        Of each cell; 1 unless `how` is "draw".

    Returns
    -------
    (n_draws, n_variables, n_rows) float64
        NaN where nothing was missing, where a drawn value has no name, and in rows of probability zero.

    References
    ----------
    Darwiche (2003), section 4.2 (all marginals by one pass up and one down).
    """
    out = np.full((n_draws, *is_missing.shape), np.nan)
    variables = np.flatnonzero(is_missing.any(axis=1))
    rows = np.flatnonzero(is_missing.any(axis=0))
    sizes = np.maximum(model.circuit.n_values[variables], 2)
    step = max(1, MOST_AT_A_TIME // max(1, int(sizes.sum()) * n_draws))
    for first in range(0, rows.size, step):
        some = rows[first : first + step]
        part = np.ascontiguousarray(x[:, some])
        if how == "draw":
            found = _drawn(model, part, variables, nameable, (n_draws, seed, some + first_row))
        else:
            found = _expected(model, part, variables, how, nameable)[np.newaxis]
        mask = is_missing[np.ix_(variables, some)]
        out[np.ix_(np.arange(n_draws), variables, some)] = np.where(mask, found, np.nan)
    return out


def _expected(model: Answering, x: Array, variables: Integers, how: How, nameable: Sequence[Mask]) -> Floats:
    """(n_asked, n_rows): mode or mean of each asked variable; NaN in rows of probability zero."""
    try:
        return _of_possible(model, x, variables, how, nameable)
    except ImpossibleEvidence:  # rare, so that nobody looks for it beforehand
        found = np.full((variables.size, x.shape[1]), np.nan)
        possible = model.row_logs(x) > -np.inf
        if possible.any():
            found[:, possible] = _of_possible(model, np.ascontiguousarray(x[:, possible]), variables, how, nameable)
        return found


def _of_possible(model: Answering, x: Array, variables: Integers, how: How, nameable: Sequence[Mask]) -> Floats:
    found = np.full((variables.size, x.shape[1]), np.nan)
    is_discrete = model.circuit.n_values[variables] > 0
    discrete, numeric = variables[is_discrete].tolist(), variables[~is_discrete].tolist()
    if discrete:
        shares = model.row_marginals(x, discrete)
        for place, v, p in zip(np.flatnonzero(is_discrete).tolist(), discrete, shares, strict=True):
            if nameable[v].any():
                found[place] = np.where(nameable[v], p, -1.0).argmax(axis=1)
    if numeric and how == "mean":
        found[~is_discrete] = model.row_means(x, numeric).T
    elif numeric:
        for place, v in zip(np.flatnonzero(~is_discrete).tolist(), numeric, strict=True):
            found[place] = _highest_peak(model, x, v)
    return found


def _highest_peak(model: Answering, x: Array, v: int) -> Floats:
    """(n_rows,): of the peaks of a variable's densities the one at which each row is most probable."""
    tried = np.array(x, np.float64)
    best, highest = np.full(x.shape[1], np.nan), np.full(x.shape[1], -np.inf)
    for peak in model.row_peaks(x, v):
        tried[v] = peak
        logs = model.row_logs(tried)
        better = logs > highest
        best[better], highest[better] = peak[better], logs[better]
    return best


def _drawn(
    model: Answering, x: Array, variables: Integers, nameable: Sequence[Mask], draws: tuple[int, int, Integers]
) -> Floats:
    """(n_draws, n_asked, n_rows) drawn together; NaN where a value has no name, and in rows of probability zero."""
    n, seed, numbers = draws
    try:
        found = model.row_draws(x, n, seed, numbers)
    except ImpossibleEvidence:
        found = np.full((x.shape[1], n, x.shape[0]), np.nan)
        possible = model.row_logs(x) > -np.inf
        if possible.any():
            found[possible] = model.row_draws(np.ascontiguousarray(x[:, possible]), n, seed, numbers[possible])
    values = np.ascontiguousarray(found[:, :, variables].transpose(1, 2, 0))
    for place, v in enumerate(variables.tolist()):
        if model.circuit.n_values[v]:
            codes = values[:, place]
            known = ~np.isnan(codes)
            codes[known] = np.where(nameable[v][codes[known].astype(np.int64)], codes[known], np.nan)
    return values
