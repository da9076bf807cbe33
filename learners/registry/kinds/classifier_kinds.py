"""The kinds of classifiers: networks, pools of networks, averaged trees and boosted trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from learners.classifiers.averaged_trees import AveragedTrees, check_averaged_trees
from learners.classifiers.baselines.boosted import BoostedModel
from learners.classifiers.baselines.boosted_checks import check_boosted_model
from learners.classifiers.lookup.checks import check_lookup_arrays
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.checks import check_ensemble
from learners.ensembles.model import EnsembleModel
from learners.registry.class_information import network_class_information, tables_class_information
from learners.registry.column_graphs import network_column_graph, network_family_table, structure_column_graph
from learners.registry.kind import Kind, NoNetwork, NoSQL, answer_without_evidence
from learners.registry.lazy_imports import deferred
from learners.schema import Chunk
from learners.schema.encoding.json_records import encode_json_records
from learners.schema.schema import FEW_CLASSES

if TYPE_CHECKING:
    from learners.circuits.model import CircuitModel
    from learners.registry.sql.sql_networks import Writable

PROBES = 256
_NETWORKS = "learners.registry.networks.model_networks"  # queries need it, and training does not
classifier_network = deferred(f"{_NETWORKS}:classifier_network")
classifier_network_columns = deferred(f"{_NETWORKS}:classifier_network_columns")
classifier_circuit_edges = deferred(f"{_NETWORKS}:classifier_circuit_edges")


def _circuit(model: LookupModel, max_edges: int, most_bytes: int | None) -> CircuitModel:
    from learners.registry.networks.model import NetworkModel

    return NetworkModel(classifier_network(model), max_edges=max_edges, most_bytes=most_bytes)


def _network_order(model: LookupModel) -> Sequence[int]:
    """Return the class, then the attributes of the network."""
    if not model.schema.target:
        raise NoNetwork(model.kind)
    return (model.schema.n_attributes, *model.network.order)


def _sql(model: LookupModel) -> Writable:
    from learners.registry.sql.sql_networks import NetworkInSQL  # a process that only serves needs no SQL

    if model.schema.target is None:
        raise NoSQL(f"A model of kind {model.kind!r}")
    return NetworkInSQL(model)


def _pool_sql(model: EnsembleModel) -> Writable:
    from learners.registry.sql.sql_networks import PoolInSQL

    return PoolInSQL(model)


def _answer_with_intervals(model: LookupModel) -> Sequence[float]:
    if model.variances and model.schema.n_classes <= FEW_CLASSES:
        model.credible_intervals(encode_json_records([{}], model.schema))
    return answer_without_evidence(model)


def _answer_with_explanations(model: EnsembleModel | BoostedModel) -> Sequence[float]:
    """Predict and explain rows with every code by the trees of another library, then the row without evidence."""
    probabilities = answer_without_evidence(model)
    sizes = model.schema.domain_sizes + 1  # the last code is that of a value never seen
    rng = np.random.default_rng(0)
    x = np.array([rng.permutation(np.arange(PROBES) % size) for size in sizes])
    chunk = Chunk(x.astype(model.schema.code_dtype), None)
    if not np.isfinite(model.predict_proba(chunk)).all() or not np.isfinite(model.log_terms(chunk)[1]).all():
        raise ValueError("it answers with values that are not numbers")
    model.tables()
    return probabilities


def _by_joint(capability: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a capability of networks into one of an ensemble, by its joint member."""
    return lambda model, *arguments: capability(model.joint, *arguments)


LOOKUP = Kind(
    LookupModel,
    check_lookup_arrays,
    circuit=_circuit,
    columns=classifier_network_columns,
    n_circuit_edges=classifier_circuit_edges,
    network=classifier_network,
    has_arcs=True,
    network_order=_network_order,
    graph=network_column_graph,
    family_table=network_family_table,
    importances=network_class_information,
    sql=_sql,
    trial=_answer_with_intervals,
)
ENSEMBLE = Kind(
    EnsembleModel,
    check_ensemble,
    circuit=_by_joint(_circuit),
    columns=_by_joint(classifier_network_columns),
    n_circuit_edges=_by_joint(classifier_circuit_edges),
    network=_by_joint(classifier_network),
    has_arcs=True,
    network_order=_by_joint(_network_order),
    graph=_by_joint(network_column_graph),
    family_table=_by_joint(network_family_table),
    importances=_by_joint(network_class_information),
    sql=_pool_sql,
    trial=_answer_with_explanations,
)
AVERAGED_TREES = Kind(
    AveragedTrees,
    check_averaged_trees,
    graph=lambda model: structure_column_graph(model.structure()),
    importances=tables_class_information,
)
BOOSTED_TREES = Kind(
    BoostedModel,
    check_boosted_model,
    graph=lambda model: structure_column_graph(model.structure()),
    importances=lambda model: model.gains,
    trial=_answer_with_explanations,
)
