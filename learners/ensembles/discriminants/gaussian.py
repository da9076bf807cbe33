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
# Numbers that the deviations, or the factors, of a block of rows may take.
BLOCK_NUMBERS = 1 << 17


@dataclass(frozen=True, eq=False)
class Discriminant:
    """One Gaussian for each class, over scores of the codes of the selected columns. All arrays read-only.

    A row's score of a class is weight · (log share of the class + log density of the scores). The density of a row that lacks
    columns is the marginal one of the others. A log density counts as at least the largest of the row's minus `bound`: Gaussian
    tails would exclude a class on the word of one outlier.
    """

    columns: Integers  # (m,) int64 attributes, ascending
    starts: Integers  # (m + 1,) int64: where the scores of each column's codes begin
    scores: Floats  # (n_codes,) float64
    log_shares: Floats  # (n_classes,) float64
    means: Floats  # (n_classes, m) float64
    covariances: Floats  # (n_classes, m, m) float64
    weight: Floats  # (1,) float64
    bound: Floats  # (1,) float64, positive

    def __post_init__(self) -> None:
        freeze_arrays(*vars(self).values())

    def scaled(self, factor: float) -> Discriminant:
        """Multiply the weight."""
        return replace(self, weight=self.weight * factor)

    def add_scores(self, x: Codes, out: Floats) -> None:
        """Add the scores of codes (n_attributes, n) to `out` (n, n_classes)."""
        for rows, deviations, factors, log_sizes in self._blocks(x):
            squares = _squared_lengths(deviations, factors)
            densities = bounded(-log_sizes.sum(axis=1) - 0.5 * squares, self.bound)
            out[rows] += self.weight * (self.log_shares[:, np.newaxis] + densities).T

    def log_terms(self, x: Codes, n_attributes: int) -> tuple[Floats, Floats]:
        """Return the terms that sum to the scores: those of the classes (n_classes,), and each attribute's
        (n_attributes, n, n_classes).

        A column's term is its half of what the deviations of both columns contribute together. What the bound adds to a class
        is split among the columns by the sizes of their terms.
        """
        terms = np.zeros((n_attributes, x.shape[1], self.log_shares.size))
        for rows, deviations, factors, log_sizes in self._blocks(x):
            lengths = np.einsum("kjir,kir->kjr", factors, deviations)
            own = -0.5 * deviations * np.einsum("kjir,kjr->kir", factors, lengths) - log_sizes
            densities, sizes = own.sum(axis=1), np.abs(own)
            added = (bounded(densities, self.bound) - densities) / np.maximum(
                sizes.sum(axis=1), np.finfo(np.float64).tiny
            )
            own += added[:, np.newaxis] * sizes
            terms[np.ix_(self.columns, rows)] += self.weight * own.transpose(1, 2, 0)
        return self.weight * self.log_shares, terms

    def _blocks(self, x: Codes) -> Iterator[tuple[Integers, Floats, Floats, Floats]]:
        """Yield some rows, and of these the deviations from the means (n_classes, m, n), zero in columns that a row lacks, the
        inverse Cholesky factors (n_classes, m, m, n) and the logarithms of the factors' diagonals (n_classes, m, n).

        The last axis of the factors and of the logarithms is 1 where all rows lack the same columns.
        """
        n_classes, m = self.means.shape
        codes = x[self.columns].astype(np.int64)
        is_known = codes < np.diff(self.starts)[:, np.newaxis]
        patterns, number = np.ones((1, m), np.bool_), np.zeros(x.shape[1], np.int64)
        if not is_known.all():
            packed = np.packbits(is_known, axis=0).T
            _, places, number = np.unique(packed, axis=0, return_index=True, return_inverse=True)
            patterns, number, codes = is_known.T[places], number.ravel(), np.where(is_known, codes, 0)
        z = self.scores[self.starts[:-1, np.newaxis] + codes]
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(np.bincount(number, minlength=len(patterns)))
        first = 0
        while first < order.size:
            pattern = int(number[order[first]])
            is_same = ends[pattern] - first >= m
            n_most = BLOCK_NUMBERS // (n_classes * m * (1 if is_same else m))
            last = min(int(ends[pattern]) if is_same else order.size, first + max(1, n_most))
            rows = order[first:last]
            own = np.zeros(1, np.int64) if is_same else number[rows] - pattern
            known = patterns[pattern : pattern + int(own[-1]) + 1]
            deviations = z.take(rows, axis=1) - self.means[:, :, np.newaxis]
            if not known.all():
                deviations *= is_known.take(rows, axis=1)
            yield rows, deviations, *(np.moveaxis(array[own], 0, -1) for array in self._factors(known))
            first = last

    def _factors(self, patterns: Mask) -> tuple[Floats, Floats]:
        """Return the inverse Cholesky factors (n_patterns, n_classes, m, m) and the logarithms of the factors' diagonals
        (n_patterns, n_classes, m) of the marginal covariances of known columns (n_patterns, m), those of the identity elsewhere.
        """
        if len(patterns) == 1 and patterns.all():
            return self._whole
        known = patterns[:, np.newaxis, :, np.newaxis] & patterns[:, np.newaxis, np.newaxis]
        return whitened(np.where(known, self.covariances, np.eye(self.columns.size)))

    @cached_property
    def _whole(self) -> tuple[Floats, Floats]:
        return whitened(self.covariances[np.newaxis])

    def to_arrays(self) -> dict[str, Array]:
        """Return named arrays for `discriminant_from_arrays`."""
        return {PREFIX + name: array for name, array in vars(self).items() if isinstance(array, np.ndarray)}


def bounded(densities: Floats, bound: Floats) -> Floats:
    """Raise log densities (n_classes, n) to at least the largest of a row minus `bound` (1,)."""
    return np.maximum(densities, densities.max(axis=0) - bound)


def whitened(covariances: Floats) -> tuple[Floats, Floats]:
    """Return the inverse Cholesky factors (…, m, m) of covariances, and the logarithms of the factors' diagonals (…, m)."""
    factors = np.linalg.cholesky(covariances)
    return np.linalg.inv(factors), np.log(np.diagonal(factors, axis1=-2, axis2=-1))


def _squared_lengths(deviations: Floats, factors: Floats) -> Floats:
    """Return the squared lengths (n_classes, n) of deviations (n_classes, m, n), whitened by factors (n_classes, m, m, n or 1).

    Column by column, not by BLAS: so an answer does not depend on the rows beside it.
    """
    total = np.zeros_like(deviations)
    for column in range(deviations.shape[1]):
        total[:, column:] += factors[:, column:, column] * deviations[:, np.newaxis, column]
    squares = np.zeros((deviations.shape[0], deviations.shape[2]))
    for column in range(deviations.shape[1]):
        squares += total[:, column] ** 2
    return squares


def discriminant_from_arrays(arrays: Arrays) -> Discriminant | None:
    """Build the discriminant from the output of `to_arrays`; None without one, as in models up to release 0.2.0."""
    names = Discriminant.__dataclass_fields__
    return Discriminant(**{name: arrays[PREFIX + name] for name in names}) if has_discriminant(arrays) else None


def has_discriminant(arrays: Mapping[str, Any]) -> bool:
    """Return True if arrays of a model hold a discriminant, or any part of one."""
    return any(name.startswith(PREFIX) for name in arrays)


def check_discriminant(schema: Schema, arrays: Mapping[str, Any]) -> None:
    """Refuse arrays that are not a discriminant over the codes of a schema. Raises InvalidArray."""
    columns = check_array_type_and_shape(arrays, PREFIX + "columns", np.int64)
    is_wrong = (columns < 0) | (columns >= schema.n_attributes) | (np.diff(columns, prepend=-1) <= 0)
    check_array_elements(PREFIX + "columns", is_wrong, "names no attribute, or not in ascending order")
    m, k = columns.size, schema.n_classes
    starts = check_array_type_and_shape(arrays, PREFIX + "starts", np.int64, m + 1)
    n_codes = int(schema.domain_sizes[columns].sum())
    check_array_offsets(PREFIX + "starts", starts, m, n_codes)
    is_wrong = np.diff(starts) != schema.domain_sizes[columns]
    check_array_elements(PREFIX + "starts", is_wrong, "has another number of codes than the column")
    shapes = {
        "scores": (n_codes,),
        "log_shares": (k,),
        "means": (k, m),
        "covariances": (k, m, m),
        "weight": (1,),
        "bound": (1,),
    }
    for name, shape in shapes.items():
        array = check_array_type_and_shape(arrays, PREFIX + name, np.float64, *shape)
        check_array_elements(PREFIX + name, ~np.isfinite(array), "holds a value that is not finite")
    check_array_elements(PREFIX + "bound", arrays[PREFIX + "bound"] <= 0, "is not positive")
    for place, own in enumerate(arrays[PREFIX + "covariances"]):
        is_wrong = np.array([not np.array_equal(own, own.T) or bool((np.linalg.eigvalsh(own) <= 0).any())])
        check_array_elements(PREFIX + "covariances", is_wrong, f"is not positive definite for class {place}")
