"""Refuse tables for which no posterior can be computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from learners.counts.moments import Moments
from learners.errors import InvalidArray, InvalidParameter, LearnerError, SchemaError, columns_setting
from learners.kernels.arrays import Arrays, Floats
from learners.models.model import Header
from learners.orders.lattice.graph_samples import bitset_nodes
from learners.orders.scores.bdeu_bge import BGe, BGePrior, Standard
from learners.schema import Schema

# What the others leave of a column's variance, if it is no linear combination of them.
LEAST_SHARE = 1e-10
# A column belongs to the combination if its weight, of standardised columns, is more than this.
LEAST_WEIGHT = 1e-4


class TooFewRows(LearnerError, ValueError):
    """Raised if there are fewer complete rows than the score needs."""


def check_bge_columns(schema: Schema) -> None:
    """Refuse columns that BGe does not support. Raises SchemaError."""
    for attribute in schema.attributes:
        if attribute.kind != "numeric":
            raise SchemaError(
                f"Column {attribute.name!r} is nominal ({attribute.arrow_type}), and BGe needs numbers. Drop it, or use score='bdeu'.",
                attribute.name,
            )


def checked_bge_score(moments: Moments, prior: BGePrior, standardise: bool) -> tuple[BGe, Standard]:
    """Return the BGe score of a table, and the standardization of its columns.

    Raises TooFewRows if there are fewer than two complete rows; SchemaError if a column is constant in the complete
    rows, or a linear combination of others; InvalidParameter.
    """
    names = moments.columns
    d, n = len(names), moments.n_rows
    prior.resolved(d)
    if n < 2:
        without = f" ({moments.n_incomplete:,} have missing numbers)" if moments.n_incomplete else ""
        raise TooFewRows(
            f"There are only {n:,} complete rows{without} for {d} columns, and BGe needs at least two: drop columns, fill in missing "
            "numbers, or cut the columns with score='bdeu'."
        )
    mean, scatter = moments.mean(), moments.scatter()
    variance = np.diag(scatter) / n
    constant = [name for name, own in zip(names, variance.tolist(), strict=True) if own <= 0]
    if constant:
        one = len(constant) == 1
        listed = ", ".join(map(repr, constant))
        raise SchemaError(
            f"{'Column' if one else 'Columns'} {listed} {'is' if one else 'are'} constant in the {n:,} complete rows, so "
            f"nothing can depend on {'it. Drop it' if one else 'them. Drop them'}: {columns_setting(dict.fromkeys(constant, 'drop'))}.",
            constant[0],
        )
    spread = np.sqrt(variance)
    correlation = scatter / n / np.outer(spread, spread)
    if n > d:  # Of fewer rows every column is a combination of the others, and the prior keeps the score proper.
        _check_collinear(correlation, names)
    if not standardise:
        return BGe(n, mean, scatter, prior), Standard.none(d)
    return BGe(n, np.zeros(d), correlation * n, prior), Standard(mean, spread)


def _check_collinear(correlation: Floats, names: list[str]) -> None:
    """Check for linear dependence by the residual variance of each column given those before it."""
    for last in range(1, len(names)):
        before, own = correlation[:last, :last], correlation[:last, last]
        weights = np.linalg.solve(before, own)
        if correlation[last, last] - own @ weights < LEAST_SHARE:
            others = [name for name, weight in zip(names, weights, strict=False) if abs(weight) > LEAST_WEIGHT]
            raise SchemaError(
                f"Column {names[last]!r} is a linear combination of {', '.join(map(repr, others))}: each of them would be a perfect "
                "parent of the others. Drop one of them.",
                names[last],
            )


def check_order_posterior(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays of a stored model that training could not have written, because kernels do not check indices.

    Raises InvalidArray.
    """
    schema = Schema.from_json(cast(Header, header)["schema"])
    d = schema.n_attributes
    sizes, candidates = arrays["n_candidates"], arrays["candidates"]
    _require(
        sizes.shape == (d,) and np.all((sizes >= 0) & (sizes < min(d, 25))),
        "n_candidates",
        "is not a number of candidates for each column",
    )
    _require(candidates.shape == (int(sizes.sum()),), "candidates", "does not have the size given by n_candidates")
    for node, own in enumerate(np.split(candidates, np.cumsum(sizes)[:-1])):
        is_sound = np.all((own >= 0) & (own < d) & (own != node)) and np.all(np.diff(own) > 0)
        _require(is_sound, "candidates", "must contain ascending numbers of other columns")
    total = int(np.sum(1 << sizes))
    places, logs = arrays["places"], arrays["logs"]
    if places.size:
        _require(
            places[0] >= 0 and places[-1] < total and np.all(np.diff(places) > 0),
            "places",
            "does not match the candidates",
        )
    _require(logs.shape == (places.size or total,), "logs", "does not match the candidates")
    _require(not np.isnan(logs).any() and not np.any(logs == np.inf), "logs", "contains values that are not log scores")
    sets = arrays["sets"]
    if sets.size:
        ends = int(sets[0]) == 0 and int(sets[-1]) == (1 << d) - 1
        _require(ends and np.all(sets[1:] > sets[:-1]), "sets", "must ascend from no column to all columns")
    else:
        _require(d <= 24, "sets", "is empty, but there are too many columns to sum over all orders")
    finite = {"probabilities": d * d, "center": d, "spread": d}
    if header.get("bge") is not None:
        finite |= {"mean": d, "scatter": d * d}
    for name, shape in finite.items():
        _require(
            arrays[name].shape == (shape,) and np.isfinite(arrays[name]).all(), name, f"is not {shape} finite numbers"
        )
    _require(bool((arrays["spread"] > 0).all()), "spread", "contains a standard deviation that is not positive")
    if header.get("bge") is not None:
        _check_stored_bge(cast("Mapping[str, object]", header["bge"]), arrays["scatter"].reshape(d, d))
    best = arrays["best"]
    _require(
        best.shape == (d,) and all(own >> d == 0 for own in best.tolist()),
        "best",
        "is not a set of columns for each column",
    )
    shares = arrays["conditional"]
    n_cells = sum(
        int(np.prod([schema.attributes[i].n_values for i in bitset_nodes(own)], dtype=object))
        * schema.attributes[node].n_values
        for node, own in enumerate(best.tolist())
    )
    _require(shares.size in (0, n_cells) and np.isfinite(shares).all(), "conditional", "does not match the best graph")
    if "rows" in arrays:
        rows, counts = arrays["rows"], arrays["row_counts"]
        fits = rows.dtype.kind == "u" and counts.ndim == 1 and rows.size == d * counts.size and np.all(counts > 0)
        is_known = fits and np.all(schema.domain_sizes > rows.reshape(d, -1).T)
        _require(is_known, "rows", "contains rows that do not match the columns")


def _check_stored_bge(bge: Mapping[str, object], scatter: Floats) -> None:
    """Refuse a BGe score that no rows can have. Raises InvalidParameter or InvalidArray."""
    n_rows = bge.get("n_rows")
    if type(n_rows) is not int or n_rows < 1:
        raise InvalidParameter("n_rows", n_rows, "a number of rows")
    for name in ("alpha_mu", "alpha_w", "t"):
        if not isinstance(value := bge.get(name), int | float | None):
            raise InvalidParameter(name, value, "a number")
    BGePrior(**{name: cast(Any, bge[name]) for name in ("alpha_mu", "alpha_w", "t")}).resolved(len(scatter))
    least = np.linalg.eigvalsh(scatter)[0] if len(scatter) else 0.0
    is_sum = np.allclose(scatter, scatter.T, rtol=1e-9) and least >= -1e-9 * max(np.abs(scatter).max(initial=0.0), 1.0)
    _require(is_sum, "scatter", "is not a sum of products of deviations")


def _require(condition: bool | np.bool_, name: str, reason: str) -> None:
    if not condition:
        raise InvalidArray(name, reason)
