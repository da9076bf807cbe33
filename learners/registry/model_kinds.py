"""The one table from a model's kind to its class, to read stored models back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from learners.circuits.bayesian.model import BayesianCircuit
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.classifiers.averaged_trees import AveragedTrees, check_averaged_trees
from learners.classifiers.baselines.boosted import BoostedModel
from learners.classifiers.baselines.boosted_checks import check_boosted_model
from learners.classifiers.lookup.checks import check_lookup_arrays
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.checks import check_ensemble
from learners.ensembles.model import EnsembleModel
from learners.errors import LearnerError
from learners.kernels.arrays import Arrays
from learners.models.model import Header, Model
from learners.orders.checks import check_order_posterior
from learners.orders.model import OrderModel
from learners.registry.networks.model import (
    LinearModel,
    NetworkModel,
    check_discrete_network,
    check_linear_gaussian_network,
)
from learners.schema import Schema
from learners.schema.checks import check_schema

KINDS: dict[str, type[Model]] = {
    model.kind: model
    for model in (
        *(LookupModel, AveragedTrees, EnsembleModel, BoostedModel),
        *(CircuitModel, BayesianCircuit, GaussianModel, NetworkModel, LinearModel, OrderModel),
    )
}
# Circuits are checked whenever they are made.
CHECKS = {
    LookupModel.kind: check_lookup_arrays,
    AveragedTrees.kind: check_averaged_trees,
    EnsembleModel.kind: check_ensemble,
    BoostedModel.kind: check_boosted_model,
    NetworkModel.kind: check_discrete_network,
    LinearModel.kind: check_linear_gaussian_network,
    OrderModel.kind: check_order_posterior,
}


def add_derived_arrays(header: Mapping[str, object], arrays: Arrays) -> Arrays:
    """The arrays of a model with those that its header names as derived, made anew where they are missing."""
    derived = cast("Mapping[str, list[str]]", header).get("derived", [])
    if all(name in arrays for name in derived):
        return arrays
    whole = load_model(header, arrays).to_arrays()[1]
    return dict(arrays) | {name: whole[name] for name in derived}


def load_model(header: Mapping[str, object], arrays: Arrays, *, is_trusted: bool = True) -> Model:
    """The model of `Model.to_arrays`.

    `is_trusted`: whether they are as we wrote them. If not, every index is looked at first: kernels would follow it
    anywhere. Raises LearnerError if this version of fewpass does not know the kind, or what is not trusted is no such
    model.
    """
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise LearnerError(f"A model of kind {kind!r} needs another version of fewpass (known: {', '.join(KINDS)}).")
    if not is_trusted:
        check_schema(Schema.from_json(cast(Header, header)["schema"]))
        if kind in CHECKS:
            CHECKS[kind](header, arrays)
    return KINDS[kind].from_arrays(header, arrays)
