"""The kinds of circuits: sum-product networks, draws of them, mixtures of Gaussians, and networks that came as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from learners.circuits.bayesian.model import BayesianCircuit, check_drawn_circuit
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.errors import NoImportances
from learners.kernels.arrays import Floats
from learners.models.query import Marginal
from learners.registry.class_information import drawn_class_information
from learners.registry.column_graphs import structure_column_graph
from learners.registry.kind import Kind, Resumption, answer_without_evidence
from learners.registry.networks.arc_networks import ArcNetwork
from learners.registry.networks.model import (
    ArcModel,
    LinearModel,
    NetworkModel,
    check_discrete_network,
    check_linear_gaussian_network,
)
from learners.schema.encoding.encode import encode


def _itself(model: CircuitModel, max_edges: int, most_bytes: int | None) -> CircuitModel:
    del max_edges, most_bytes
    return model


def _log_likelihood(model: CircuitModel, batch: pa.RecordBatch) -> Floats:
    return model.log_likelihood(encode(batch, model.schema))


def _importances(model: CircuitModel) -> Floats:
    if model.columns.class_variable is None:
        raise NoImportances(model.kind)
    return drawn_class_information(model, model.columns.class_variable)


def _trial(model: CircuitModel) -> Sequence[float]:
    answered = [answer["probability"] for answer in model.answer([Marginal({})])]
    return answered if model.schema.target is None else answer_without_evidence(model)


def _resume_posterior(model: CircuitModel) -> Resumption | None:
    from learners.circuits.recipes import (
        streaming_update_recipe,  # a process that only serves need not load what learns
    )

    posterior = model.posterior
    if posterior is None:
        return None
    return Resumption(lambda: streaming_update_recipe(model.schema, posterior, model.facts))


def _resume_chains(model: BayesianCircuit) -> Resumption | str:
    from learners.circuits.bayesian.recipes import resume_sampling_recipe

    if model.sampled is None:
        return "it kept no state to continue from"
    return Resumption(lambda: resume_sampling_recipe(model), reads_all_rows=True)


def _network(model: ArcModel, most_cells: int | None) -> ArcNetwork:
    del most_cells
    return model.network


# Circuits are checked whenever they are made.
CIRCUIT = Kind(
    CircuitModel,
    circuit=_itself,
    is_circuit=True,
    log_likelihood=_log_likelihood,
    importances=_importances,
    trial=_trial,
    resume=_resume_posterior,
)
SAMPLED_CIRCUIT = replace(
    CIRCUIT, model=BayesianCircuit, check=check_drawn_circuit, resume=_resume_chains, trace=lambda model: model.trace
)
GAUSSIAN_MIXTURE = replace(CIRCUIT, model=GaussianModel, has_regions=False)
NETWORK = replace(
    CIRCUIT,
    model=NetworkModel,
    check=check_discrete_network,
    network=_network,
    has_arcs=True,
    network_order=lambda model: range(len(model.network.parents)),
    graph=lambda model: structure_column_graph(model.structure()),
)
LINEAR_NETWORK = replace(NETWORK, model=LinearModel, check=check_linear_gaussian_network, has_regions=False)
