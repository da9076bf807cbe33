"""Schema of a circuit's columns, and densities of its numeric ones, given or selected by validation likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.em.em import ExpectedCounts
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.parameters import AUTO, CONJUGATE, ROW_BY_ROW, CircuitParameters, GibbsParameters
from learners.circuits.structures.circuit_builder import Blocks
from learners.circuits.structures.densities import (
    LEAF_KINDS,
    Densities,
    coarsest_decimal_grid,
    interval_densities,
    minimum_leaf_deviations,
    schema_with_distributions,
)
from learners.circuits.structures.from_file import schema_with_circuit_leaves
from learners.errors import SchemaError
from learners.kernels.arrays import Floats, Integers
from learners.passes.column_summaries import NO_CUTS, ColumnSummaries, quantile_binned_schema
from learners.passes.learner import Passes
from learners.passes.refreshed_schema import kept_schema, refreshed_schema
from learners.schema import Kept, Overrides, Schema
from learners.schema.discretise import Histogram, floats_from_ordered_keys
from learners.schema.schema import Attribute, Distribution

# Rows that are drawn of a column; of every four, three are fitted.
MOST_ROWS = 12_000
ONE_IN = 4
PASSES = 12
LAPLACE = 0.1
# A column with a step is recorded on it if numbers are there so many times each.
REPEATED = 2.0
GAUSSIAN: Distribution = "gaussian"
DENSITIES: tuple[Distribution, ...] = (GAUSSIAN, "student", "lognormal", "quantile")
ON_GRID: tuple[Distribution, ...] = ("rounded", "rounded-lognormal", "rounded-quantile")
# What counts as a gain, in nats a row: of less, the simpler distribution stays, which is told first.
GAIN = 0.002


@dataclass(frozen=True)
class LeafChoice:
    """Selected leaf distribution of a column."""

    distribution: Distribution
    step: float  # on which the column is recorded, whose cells have a probability; 0 if its leaves are densities
    # Mean log likelihood of the rows to choose by, in nats: of masses, or of densities, never of both.
    tried: dict[str, float]

    def facts(self) -> dict[str, object]:
        """Return the fields as JSON-compatible values."""
        return {"distribution": self.distribution, "step": self.step, "log_likelihood": self.tried}


def choose_leaf_distribution(attribute: Attribute, histogram: Histogram, seed: int = 0) -> LeafChoice:
    """Select the distribution of a numeric column with the best validation likelihood, as a mixture over the column's
    intervals.

    Columns recorded on a grid get a distribution over its cells; others get a density. The two are not compared.
    Raises SchemaError if the column holds no number, or none that a distribution supports.
    """
    x, n = floats_from_ordered_keys(histogram.keys << histogram.level), histogram.counts.sum(axis=1)
    grid = (
        coarsest_decimal_grid(x, attribute.arrow_type)
        if histogram.level == 0 and n.sum() >= REPEATED * x.size
        else None
    )
    rows = _drawn(x, n, seed)
    is_choice = np.arange(rows.size) % ONE_IN == ONE_IN - 1
    fit, valid = rows[~is_choice], rows[is_choice]
    tried: dict[Distribution, float] = {}
    for distribution in ON_GRID if grid else DENSITIES:
        own = replace(attribute, distribution=distribution)
        try:
            # The whole column's numbers must have the distribution; and a grid is found from all of them.
            interval_densities(own, histogram)
            densities = _of_rows(own, fit, grid is not None, histogram)
        except SchemaError:
            continue
        tried[distribution] = _score(densities, fit, valid)
    if not tried:
        # Says which number is at fault.
        interval_densities(replace(attribute, distribution=GAUSSIAN), histogram)
    best = next(iter(tried), GAUSSIAN)
    for distribution, score in tried.items():
        if score > tried[best] + GAIN:
            best = distribution
    return LeafChoice(best, grid.step if grid else 0.0, {str(name): score for name, score in tried.items()})


def _drawn(x: Floats, n: Integers, seed: int) -> Floats:
    """Return rows of the column in random order, all if they are few."""
    rng = np.random.default_rng(seed)
    total = int(n.sum())
    if total <= MOST_ROWS:
        return rng.permutation(np.repeat(x, n))
    return rng.permutation(np.repeat(x, rng.multinomial(MOST_ROWS, n / total)))


def _of_rows(attribute: Attribute, fit: Floats, on_grid: bool, histogram: Histogram) -> Densities:
    """Fit densities to the training rows alone, with the grid of the whole column."""
    own = interval_densities(attribute, Histogram.of(fit, np.zeros(fit.size, np.int64), 1))
    if not on_grid:
        return own
    whole = interval_densities(attribute, histogram).extras[:2]
    return replace(own, extras=np.concatenate([whole, own.extras[2:]]))


def _score(densities: Densities, fit: Floats, valid: Floats) -> float:
    """Return the mean log likelihood of the validation rows under a mixture of the column's densities fitted to the
    training rows.
    """
    parameters, blocks = densities.parameters, Blocks([0])
    n = len(parameters)
    leaves = blocks.leaves(LEAF_KINDS[densities.distribution], np.zeros(n, np.int64), parameters)
    blocks.sums(leaves[np.newaxis], np.full((1, n), -np.log(n)))
    circuit = blocks.circuit()
    least = minimum_leaf_deviations(circuit, {0: densities})
    for _ in range(PASSES):
        counts = ExpectedCounts(circuit)
        counts.update(fit[np.newaxis])
        circuit = counts.maximised(LAPLACE, least)
    return float(log_values(circuit, valid[np.newaxis]).mean())


def choose_column_models(
    target: str | None,
    parameters: CircuitParameters | GibbsParameters,
    given: Schema | Kept | None,
    overrides: Overrides,
    read: Circuit | None,
    cuts: Mapping[str, tuple[float, ...]] = NO_CUTS,
) -> Passes[tuple[Schema, dict[int, Densities], dict[str, LeafChoice]]]:
    """Determine the schema, following a circuit and the cut points from its file, if given; the densities of its
    continuous attributes; and how they were chosen.
    """
    every = ColumnSummaries(target, overrides, max_values=parameters.max_values, n_bins=parameters.n_bins)
    summaries: ColumnSummaries | None = None
    if isinstance(given, Schema):
        schema = given
    elif kept_schema(given) is not None:
        domains: ColumnSummaries = yield ColumnSummaries(
            target, overrides, max_values=parameters.max_values, kept=kept_schema(given)
        )
        schema = domains.build_schema()
    else:
        seen: ColumnSummaries = yield every
        summaries = seen
        # Cut points that tell classes apart say little of the columns' own distributions.
        # The variables of a circuit that was read are numbered as its file names the columns, or else as these stand.
        if cuts.keys() - {target} <= seen.found.keys():
            seen.order_columns([*cuts, *seen.found])
        schema = yield from refreshed_schema(
            given, seen, lambda: quantile_binned_schema(seen, parameters.n_bins, cuts, by_name=read is None)
        )
    require_learnable_columns(schema)
    choices: dict[str, LeafChoice] = {}
    if read is None:
        kinds: dict[str, str | None] = {name: override.distribution for name, override in every.overrides.items()}
        default = parameters.leaves or "intervals"
        if default == AUTO:
            default = "gaussian"
            undecided = [
                a for a in schema.attributes if a.kind == "numeric" and not (a.distribution or kinds.get(a.name))
            ]
            if undecided and parameters.learning not in ROW_BY_ROW:
                summaries = summaries or (yield every)
                choices = {
                    a.name: choose_leaf_distribution(a, summaries.found[a.name].histogram, parameters.seed)
                    for a in undecided
                }
                kinds |= {name: choice.distribution for name, choice in choices.items()}
        schema = schema_with_distributions(schema, kinds, default)
        check_conjugate_distributions(schema, parameters)
    else:
        schema = schema_with_circuit_leaves(schema, read, parameters.circuit)
    if schema.continuous and summaries is None:
        summaries = yield every
    if summaries is None:
        return schema, {}, {}
    continuous = {i: schema.attributes[i] for i in schema.continuous}
    histograms = {i: summaries.found[a.name].histogram for i, a in continuous.items()}
    return schema, {i: interval_densities(a, histograms[i]) for i, a in continuous.items()}, choices


def check_conjugate_distributions(schema: Schema, parameters: CircuitParameters | GibbsParameters) -> None:
    """Refuse distributions that the learning method does not support."""
    for attribute in schema.attributes:
        if parameters.learning in ROW_BY_ROW and attribute.distribution not in (None, *CONJUGATE):
            raise SchemaError(
                f"Column {attribute.name!r} has the distribution {attribute.distribution!r}, which {parameters.learning} cannot learn: "
                f"use {', '.join(CONJUGATE)} or 'intervals', or learning=em.",
                attribute.name,
            )


def require_learnable_columns(schema: Schema) -> None:
    """Refuse a table without any learnable column. Raises SchemaError."""
    if not schema.n_attributes and schema.target is None:
        reasons = "; ".join(f"{column.name}: {column.reason}" for column in schema.left_out[:5])
        raise SchemaError(f"No column is left to learn from ({reasons}).")
