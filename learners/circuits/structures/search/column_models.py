"""The schema of a circuit's columns, and the densities of those that are numbers to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from learners.circuits.circuit import Circuit
from learners.circuits.structures.densities import CONJUGATE, Densities, densities_of, with_distributions
from learners.circuits.structures.from_file import with_leaves_of
from learners.circuits.structures.search.leaf_selection import LeafChoice, chosen_leaves
from learners.errors import SchemaError
from learners.passes.column_summaries import NO_CUTS, ColumnSummaries, binned_schema
from learners.passes.learner import Passes
from learners.schema import Kept, Overrides, Schema

AUTO = "auto"
# Learning whose numeric leaves have conjugate priors.
ROW_BY_ROW = ("adf", "bmm", "gibbs")


class Modelling(Protocol):
    """The parameters of a circuit that say how columns are modelled."""

    @property
    def learning(self) -> str:
        """How weights are learned."""

    @property
    def leaves(self) -> str | None:
        """How numeric columns are modelled."""

    @property
    def max_values(self) -> int:
        """Values that a nominal attribute keeps."""

    @property
    def n_bins(self) -> int:
        """Most intervals of a numeric column."""

    @property
    def circuit(self) -> str:
        """Path of a given circuit."""

    @property
    def seed(self) -> int:
        """Of the rows that are drawn."""


def modelled(
    target: str | None,
    parameters: Modelling,
    given: Schema | Kept | None,
    overrides: Overrides,
    read: Circuit | None,
    cuts: Mapping[str, tuple[float, ...]] = NO_CUTS,
) -> Passes[tuple[Schema, dict[int, Densities], dict[str, LeafChoice]]]:
    """The schema, as a circuit that was read has it, with cut points that its file tells, if there is one, the densities of its continuous attributes, and how they were chosen."""
    every = ColumnSummaries(target, overrides, max_values=parameters.max_values, n_bins=parameters.n_bins)
    summaries: ColumnSummaries | None = None
    if isinstance(given, Schema):
        schema = given
    elif given is not None:
        domains: ColumnSummaries = yield ColumnSummaries(
            target, overrides, max_values=parameters.max_values, kept=given.schema
        )
        schema = domains.build_schema()
    else:
        summaries = yield every
        # Cut points that tell classes apart say little of the columns' own distributions.
        schema = binned_schema(summaries, parameters.n_bins, cuts)
    require_columns(schema)
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
                found = summaries.found
                choices = {a.name: chosen_leaves(a, found[a.name].histogram, parameters.seed) for a in undecided}
                kinds |= {name: choice.distribution for name, choice in choices.items()}
        schema = with_distributions(schema, kinds, default)
        check_conjugate(schema, parameters)
    else:
        schema = with_leaves_of(schema, read, parameters.circuit)
    if schema.continuous and summaries is None:
        summaries = yield every
    if summaries is None:
        return schema, {}, {}
    continuous = {i: schema.attributes[i] for i in schema.continuous}
    found = summaries.found
    return schema, {i: densities_of(a, found[a.name].histogram) for i, a in continuous.items()}, choices


def check_conjugate(schema: Schema, parameters: Modelling) -> None:
    """Refuse distributions that a way of learning does not learn."""
    for attribute in schema.attributes:
        known = (None, *CONJUGATE)
        if parameters.learning in ROW_BY_ROW and attribute.distribution not in known:
            raise SchemaError(
                f"Column {attribute.name!r} has the distribution {attribute.distribution!r}, which {parameters.learning} cannot learn: "
                f"use {', '.join(CONJUGATE)} or 'intervals', or learning=em.",
                attribute.name,
            )


def require_columns(schema: Schema) -> None:
    """Refuse a table without a column to learn from. Raises SchemaError."""
    if not schema.n_attributes and schema.target is None:
        reasons = "; ".join(f"{column.name}: {column.reason}" for column in schema.left_out[:5])
        raise SchemaError(f"No column is left to learn from ({reasons}).")
