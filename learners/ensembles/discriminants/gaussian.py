"""Gaussian discriminants over normal scores of numeric columns, which answer with any of the columns missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from learners.kernels.arrays import Array, Arrays, Codes, Floats, Integers, Mask, freeze_arrays
from learners.models.model import check_array_elements, check_array_offsets, check_array_type_and_shape
from learners.schema import Schema

PREFIX = "gaussian_"
# Numbers that the deviations of a block of rows may take.
BLOCK_NUMBERS = 1 << 17


@dataclass(frozen=True, eq=False)
class Discriminant:
    """One Gaussian for each class, over scores of the codes of some columns. All arrays read-only.

    A row's score of a class is weight · (log share of the class + log density of the scores). The density of a row that lacks
    columns is the marginal one of the others.
    """

    columns: Integers  # (m,) int64 attributes, ascending
    starts: Integers  # (m + 1,) int64: where the scores of each column's codes begin
    scores: Floats  # (n_codes,) float64
    log_shares: Floats  # (n_classes,) float64
    means: Floats  # (n_classes, m) float64
    covariances: Floats  # (n_classes, m, m) float64
    weight: Floats  # (1,) float64

    def __post_init__(self) -> None:
        freeze_arrays(*vars(self).values())

    def scaled(self, factor: float) -> Discriminant:
        """Multiply the weight."""
        return replace(self, weight=self.weight * factor)

    def add_scores(self, x: Codes, out: Floats) -> None:
        """Add the scores of codes (n_attributes, n) to `out` (n, n_classes)."""
        for rows, known, z in self._by_pattern(x):
            means, factors, log_sizes = self._whole if known.all() else self._marginal(known)
            for first, last in _blocks(rows.size, means.size):
                squares = _squared_deviations(z[:, first:last], means, factors)
                own = self.log_shares[:, np.newaxis] - log_sizes.sum(axis=1)[:, np.newaxis] - 0.5 * squares
                out[rows[first:last]] += self.weight * own.T

    def log_terms(self, x: Codes, n_attributes: int) -> tuple[Floats, Floats]:
        """Return the terms that sum to the scores: those of the classes (n_classes,), and each attribute's
        (n_attributes, n, n_classes).

        A column's term is its half of what the deviations of both columns contribute together.
        """
        terms = np.zeros((n_attributes, x.shape[1], self.log_shares.size))
        for rows, known, z in self._by_pattern(x):
            means, factors, log_sizes = self._marginal(known)
            deviations = z[np.newaxis] - means[:, :, np.newaxis]
            precisions = np.einsum("kji,kjl->kil", factors, factors)
            own = -0.5 * deviations * np.einsum("kil,klr->kir", precisions, deviations) - log_sizes[:, :, np.newaxis]
            terms[np.ix_(self.columns[known], rows)] += self.weight * own.transpose(1, 2, 0)
        return self.weight * self.log_shares, terms

    def _by_pattern(self, x: Codes) -> Iterator[tuple[Integers, Mask, Floats]]:
        """Yield rows that lack the same columns, the mask of known columns, and the scores (n_known, n) of these."""
        codes = x[self.columns].astype(np.int64)
        is_known = codes < np.diff(self.starts)[:, np.newaxis]
        if is_known.all():
            patterns, number = np.ones((1, self.columns.size), np.bool_), np.zeros(x.shape[1], np.int64)
        else:
            patterns, number = np.unique(is_known.T, axis=0, return_inverse=True)
        for place, known in enumerate(patterns):
            rows = np.flatnonzero(number.ravel() == place)
            if rows.size:
                yield rows, known, self.scores[self.starts[:-1][known][:, np.newaxis] + codes[np.ix_(known, rows)]]

    @cached_property
    def _whole(self) -> tuple[Floats, Floats, Floats]:
        return whitened(self.means, self.covariances)

    def _marginal(self, known: Mask) -> tuple[Floats, Floats, Floats]:
        return whitened(self.means[:, known], self.covariances[:, known][:, :, known])

    def to_arrays(self) -> dict[str, Array]:
        """Return named arrays for `discriminant_from_arrays`."""
        return {PREFIX + name: array for name, array in vars(self).items() if isinstance(array, np.ndarray)}


def _blocks(n_rows: int, n_numbers: int) -> Iterator[tuple[int, int]]:
    size = max(1, BLOCK_NUMBERS // max(1, n_numbers))
    return ((first, min(first + size, n_rows)) for first in range(0, n_rows, size))


def whitened(means: Floats, covariances: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the means, the inverse Cholesky factors, and the logarithms of the factors' diagonals (n_classes, m)."""
    factors = np.linalg.cholesky(covariances)
    return means, np.linalg.inv(factors), np.log(np.diagonal(factors, axis1=1, axis2=2))


def _squared_deviations(z: Floats, means: Floats, factors: Floats) -> Floats:
    """Return the squared lengths (n_classes, n) of whitened scores z (m, n).

    Column by column, not by BLAS: so an answer does not depend on the rows beside it.
    """
    total = np.zeros((means.shape[0], means.shape[1], z.shape[1]))
    for column, own in enumerate(z):
        below = factors[:, column:, column]
        total[:, column:] += below[:, :, np.newaxis] * (own - means[:, column, np.newaxis])[:, np.newaxis]
    squares = np.zeros((means.shape[0], z.shape[1]))
    for column in range(means.shape[1]):
        squares += total[:, column] ** 2
    return squares


def discriminant_from_arrays(arrays: Arrays) -> Discriminant | None:
    """Build the discriminant from the output of `to_arrays`; None if there is none, as in models up to release 0.2.0."""
    names = Discriminant.__dataclass_fields__
    return Discriminant(**{name: arrays[PREFIX + name] for name in names}) if has_discriminant(arrays) else None


def has_discriminant(arrays: Mapping[str, Any]) -> bool:
    """Return True if arrays of a model hold a discriminant, or any part of one."""
    return any(name.startswith(PREFIX) for name in arrays)


def check_discriminant(schema: Schema, arrays: Mapping[str, Any]) -> None:
    """Refuse arrays that are no discriminant over the codes of a schema. Raises InvalidArray."""
    columns = check_array_type_and_shape(arrays, PREFIX + "columns", np.int64)
    is_wrong = (columns < 0) | (columns >= schema.n_attributes) | (np.diff(columns, prepend=-1) <= 0)
    check_array_elements(PREFIX + "columns", is_wrong, "names no attribute, or not in ascending order")
    m, k = columns.size, schema.n_classes
    starts = check_array_type_and_shape(arrays, PREFIX + "starts", np.int64, m + 1)
    n_codes = int(schema.domain_sizes[columns].sum())
    check_array_offsets(PREFIX + "starts", starts, m, n_codes)
    is_wrong = np.diff(starts) != schema.domain_sizes[columns]
    check_array_elements(PREFIX + "starts", is_wrong, "has another number of codes than the column")
    shapes = {"scores": (n_codes,), "log_shares": (k,), "means": (k, m), "covariances": (k, m, m), "weight": (1,)}
    for name, shape in shapes.items():
        array = check_array_type_and_shape(arrays, PREFIX + name, np.float64, *shape)
        check_array_elements(PREFIX + name, ~np.isfinite(array), "holds a value that is not finite")
    for place, own in enumerate(arrays[PREFIX + "covariances"]):
        is_wrong = np.array([not np.array_equal(own, own.T) or bool((np.linalg.eigvalsh(own) <= 0).any())])
        check_array_elements(PREFIX + "covariances", is_wrong, f"is not positive definite for class {place}")
