"""Passes of a mixture of Gaussians: draw rows with their numbers, grow the mixture in memory, then run EM over all
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self, cast

import numpy as np

from learners.circuits.mixtures.component_search import (
    PRODUCTS_A_SECOND,
    ExpectedMoments,
    Grown,
    Halves,
    grow_gaussian_mixture,
    refit_mixture_on_all_rows,
    single_component_mixture,
)
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.circuits.structures.densities import Densities
from learners.circuits.structures.structure_search import (
    FEWEST_ROWS,
    SHARES,
    THREADS,
    em_passes_with_early_stopping,
    split_fit_and_validation_rows,
)
from learners.circuits.variables import Columns, circuit_columns
from learners.counts.row_samples import RESERVE, DrawnRows
from learners.errors import SchemaError
from learners.kernels.arrays import Codes, Floats, Integers, Uint64s
from learners.kernels.random import random_bits_array
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Work
from learners.schema import Chunk, Schema
from learners.schema.schema import MASSES

# Numbers and codes that the drawn rows may have.
ROOM, MOST_ROWS = 5_000_000, 200_000


class DrawnNumbers(DrawnRows):
    """Distinct rows with the smallest content hashes, including the numbers of continuous columns."""

    stage = "drawing rows of numbers"
    stored_name, stored_dtype = "content", np.dtype(np.int64)

    def __init__(self, schema: Schema) -> None:
        width = schema.n_attributes + 1 + len(schema.continuous)
        super().__init__(schema, min(MOST_ROWS, ROOM // width))
        self._sample = self._sample._replace(rows=np.empty((0, width), np.int64))

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        continuous = [self.schema.attributes[i].name for i in self.schema.continuous]
        return {
            "statistic": "drawn rows of numbers",
            "n": self.n_distinct,
            "reserve": RESERVE,
            "continuous": continuous,
        }

    def under(self, schema: Schema) -> Self:
        """Return a statistic of no rows with another schema."""
        return type(self)(schema)

    def _hashes(self, rows: Chunk) -> Uint64s:
        hashes = super()._hashes(rows)
        for own in _bits(rows):
            hashes = random_bits_array(hashes ^ own.view(np.uint64))
        return hashes

    def _content(self, rows: Chunk, some: Integers) -> Codes:
        return cast("Codes", np.hstack([super()._content(rows, some).astype(np.int64), _bits(rows)[:, some].T]))

    def _chunk(self, content: Codes) -> Chunk:
        n_codes = self.schema.n_attributes + 1
        codes = super()._chunk(content[:, :n_codes].astype(self.schema.code_dtype))
        return Chunk(codes.x, codes.y, np.ascontiguousarray(content[:, n_codes:].T).view(np.float64))


def _bits(rows: Chunk) -> Integers:
    """Return the bits of each number, (n_continuous, n_rows) int64, with one pattern for NaN and one for zero."""
    if rows.numbers is None:
        return np.empty((0, rows.n_rows), np.int64)
    return np.ascontiguousarray(np.where(np.isnan(rows.numbers), np.nan, rows.numbers + 0.0)).view(np.int64)


# Share of the work of "auto".
SHARE_OF_MINUTES = 0.25
# What leaves of one column may be that a Gaussian of several takes the place of.
DENSITIES = ("gaussian", "student", "lognormal", "quantile")


def mixture_refusal_reason(schema: Schema) -> tuple[str, str] | None:
    """Return why a schema's columns do not support a mixture of Gaussians, with the column at fault; None if they do."""
    continuous = [schema.attributes[i] for i in schema.continuous]
    for attribute in continuous:
        if attribute.distribution not in DENSITIES:
            is_mass = attribute.distribution in MASSES
            what = "masses, not a density" if is_mass else f"the distribution {attribute.distribution!r}"
            return f"column {attribute.name!r} has {what}", attribute.name
    if not continuous:
        return "no column is numeric", ""
    return None


def require_gaussian_columns(schema: Schema) -> None:
    """Refuse columns that do not support a mixture of Gaussians. Raises SchemaError."""
    refusal = mixture_refusal_reason(schema)
    if refusal is not None:
        reason, column = refusal
        raise SchemaError(
            f"A mixture of Gaussians cannot model these columns: {reason}. Choose leaves=gaussian, or another structure.",
            column or None,
        )


def mixture_domain_sizes(schema: Schema) -> Integers:
    """Return the domain sizes without the code for missing values, (n_variables,) int64; 0 for numeric columns, the
    class last.
    """
    missing = np.array([attribute.first_code for attribute in schema.attributes], np.int64)
    sizes = schema.domain_sizes - missing
    sizes[list(schema.continuous)] = 0
    if schema.target is not None:
        sizes = np.append(sizes, schema.n_classes)
    return sizes.astype(np.int64)


def mixture_columns(schema: Schema) -> Columns:
    """Return the mapping of columns to the variables of any mixture of the schema."""
    n_values = mixture_domain_sizes(schema)
    d = int((n_values == 0).sum())
    return circuit_columns(single_component_mixture(n_values, np.zeros(d), np.ones(d)).diagonal(), schema)


def grow_mixture_passes(
    schema: Schema, densities: Mapping[int, Densities], minutes: float, components: int | None
) -> Passes[tuple[Grown, DrawnNumbers, Chunk]]:
    """Draw rows in one pass, and run the search as work between passes; also returns the validation rows.

    If all rows were drawn, the mixture is then fitted again in the same steps on all of them.
    """
    drawn: DrawnNumbers = yield DrawnNumbers(schema)
    rows = drawn.occurrences(drawn.n_distinct)
    fit, valid = split_fit_and_validation_rows(rows) if rows.n_rows >= FEWEST_ROWS else (rows, rows)
    least = minimum_column_deviations(schema, densities)
    rows_of = mixture_columns(schema).rows_of_chunk

    def run(threads: int, advance: Advance) -> Grown:
        def report(share: float, note: str) -> None:
            advance(int(min(1.0, share) * SHARES), SHARES, note)

        work = minutes * 60 * THREADS * PRODUCTS_A_SECOND
        halves = Halves(mixture_domain_sizes(schema), rows_of(fit), rows_of(valid), least, threads)
        grown = grow_gaussian_mixture(halves, components=components, work=work, report=report)
        if not has_drawn_all_rows(drawn):
            return grown
        whole = replace(halves, fit=rows_of(rows), valid=rows_of(rows))
        mixture = refit_mixture_on_all_rows(grown.way, whole, report)
        # The same steps may end at another, lower peak.
        return replace(grown, mixture=max(grown.mixture, mixture, key=whole.score))

    grown: Grown = yield Work("growing a mixture of Gaussians", run)
    return grown, drawn, valid


def has_drawn_all_rows(drawn: DrawnNumbers) -> bool:
    """Return whether all rows were drawn."""
    return int(drawn.sample.counts.sum()) == drawn.n_rows


def minimum_column_deviations(schema: Schema, densities: Mapping[int, Densities]) -> Floats:
    """Return the standard deviation of each continuous column's recording error, (d,) float64."""
    return np.array([densities[i].narrowest for i in schema.continuous])


def learn_mixture(
    schema: Schema,
    densities: Mapping[int, Densities],
    grown: tuple[Grown, DrawnNumbers, Chunk],
    passes: int,
    facts: Mapping[str, object],
) -> Passes[GaussianModel]:
    """Run EM over all rows until the drawn rows stop gaining likelihood. Does nothing if all rows were drawn."""
    growth, drawn, valid = grown
    rows_of = mixture_columns(schema).rows_of_chunk
    least, x = minimum_column_deviations(schema, densities), rows_of(valid)
    best, done = yield from em_passes_with_early_stopping(
        growth.mixture,
        0 if has_drawn_all_rows(drawn) else passes,
        lambda mixture: ExpectedMoments(mixture, schema, rows_of, schema.columns),
        lambda moments: moments.maximised(growth.pooled, least),
        lambda mixture: float(mixture.log_density(x).mean()),
    )
    gaussians = {"pooled": growth.pooled, "tried": [size.facts() for size in growth.tried]}
    return GaussianModel(schema, best, {**facts, "em_passes": done, "n_rows": drawn.n_rows, "gaussians": gaussians})


def better_of_circuit_and_mixture(
    model: CircuitModel, densities: Mapping[int, Densities], minutes: float, passes: int
) -> Passes[CircuitModel]:
    """Return the model, or a mixture of Gaussians if it gives drawn rows a higher likelihood.

    The model has learned from all rows, including the validation rows; the mixture grows without these, in a
    quarter of the minutes. The facts of either record both attempts: `search` of the circuit, `gaussians` with
    the log likelihoods of both.
    """
    reason = mixture_refusal_reason(model.schema)
    if reason is not None:
        left_out = f"{reason[0]}, which cannot be compared with joint densities"
        return CircuitModel(model.schema, model.circuit, model.facts | {"gaussians": {"left_out": left_out}})
    grown = yield from grow_mixture_passes(model.schema, densities, minutes * SHARE_OF_MINUTES, None)
    growth, _, valid = grown
    of_circuit = float(model.log_likelihood(valid).mean())
    gaussians = {"pooled": growth.pooled, "tried": [size.facts() for size in growth.tried]}
    gaussians |= {"valid": round(growth.valid, 4), "valid_of_circuit": round(of_circuit, 4)}
    if not growth.valid > of_circuit:
        return CircuitModel(model.schema, model.circuit, model.facts | {"gaussians": gaussians})
    facts = {name: own for name, own in model.facts.items() if name != "leaves"}
    chosen = yield from learn_mixture(model.schema, densities, grown, passes, facts)
    return GaussianModel(chosen.schema, chosen.mixture, chosen.facts | {"gaussians": gaussians})
