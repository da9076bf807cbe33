"""Training of Bayesian circuits as passes: the schema, then the rows, which are sampled."""

from __future__ import annotations

from dataclasses import asdict, fields
from functools import partial
from typing import Any

from learners.circuits.bayesian.column_families import assign_column_families
from learners.circuits.bayesian.fixed_structure_gibbs import GivenStructure
from learners.circuits.bayesian.gibbs_learning import Sampling, restore_sampling
from learners.circuits.bayesian.model import BayesianCircuit
from learners.circuits.model import CircuitModel
from learners.circuits.parameters import BY_COLUMN, GibbsParameters
from learners.circuits.structures.column_models import (
    check_conjugate_distributions,
    choose_column_models,
    require_learnable_columns,
)
from learners.circuits.structures.densities import schema_with_distributions
from learners.circuits.structures.from_file import circuit_fingerprint, read_circuit
from learners.errors import require_extra
from learners.passes.column_summaries import ColumnSummaries, quantile_binned_schema
from learners.passes.learner import Passes, RowWork
from learners.schema import Kept, Overrides, Schema


def gibbs(
    target: str | None,
    parameters: GibbsParameters,
    given: Schema | Kept | None = None,
    overrides: Overrides | None = None,
) -> Passes[CircuitModel]:
    """Train a posterior over circuits: one pass for the schema, one for the rows, which are then sampled.

    Takes what `learners.circuits.recipes.spn` takes. Raises SourceError; CircuitFormatError if the file of structure
    "file" holds no circuit; SchemaError; ExtraMissing.
    References: Yokoi, Sato (2024); Zhao, Adel, Gordon, Amos (2016).
    """
    require_extra("Learner gibbs", "arviz_stats", "arviz-stats", "gibbs")
    if parameters.trials:
        require_extra("Tuning of priors (trials)", "optuna", "optuna", "gibbs")
    if parameters.structure == "auto":
        return (yield from _complete_circuit(target, parameters, given, overrides or {}))
    read, cuts = read_circuit(parameters.circuit)
    schema, _, _ = yield from choose_column_models(target, parameters, given, overrides or {}, read, cuts)
    facts = {"learner": "gibbs", "parameters": asdict(parameters), "circuit_sha256": circuit_fingerprint(read)}
    sampler = GivenStructure(schema, read, parameters, facts, parameters.seed)
    return (yield RowWork("sampling", schema, sampler.learn, ""))


def _complete_circuit(
    target: str | None, parameters: GibbsParameters, given: Schema | Kept | None, overrides: Overrides
) -> Passes[CircuitModel]:
    """Train a posterior over complete binary circuits."""
    every = ColumnSummaries(target, overrides, max_values=parameters.max_values, n_bins=parameters.n_bins)
    summaries = yield every
    schema = given if isinstance(given, Schema) else quantile_binned_schema(summaries, parameters.n_bins)
    require_learnable_columns(schema)
    distributions = {name: override.distribution for name, override in every.overrides.items()}
    schema = schema_with_distributions(schema, distributions, "intervals")
    check_conjugate_distributions(schema, parameters)
    histograms = {name: column.histogram for name, column in summaries.found.items()}
    in_intervals = {name for name, distribution in distributions.items() if distribution == "intervals"}
    schema, coding = assign_column_families(schema, histograms, parameters.leaves, in_intervals, parameters.seed)
    facts = {"learner": "gibbs", "parameters": asdict(parameters)}
    sampling = Sampling(schema, coding, parameters, facts, parameters.seed)
    return (yield RowWork("sampling", schema, sampling.learn, ""))


def resume_sampling_recipe(known: BayesianCircuit) -> Passes[CircuitModel]:
    """Continue sampling with more rows: those of the model, in the same order, followed by new ones."""
    recorded: Any = known.facts["parameters"]
    # Until 0.2.0 these were parameters of spn, with others that sampling did not follow.
    used = {own.name: recorded[own.name] for own in fields(GibbsParameters) if own.name in recorded}
    used |= {"structure": "auto", "leaves": used.get("leaves") or BY_COLUMN}
    sampling = restore_sampling(known, GibbsParameters(**used))
    return (yield RowWork("sampling", known.schema, partial(sampling.go_on, known), ""))
