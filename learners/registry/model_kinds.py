"""Table of the kinds of models, which loads stored models and looks up the capabilities of a model."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, cast

from learners.errors import InvalidArray, LearnerError
from learners.kernels.arrays import Arrays
from learners.models.model import Header, Model, check_model_facts
from learners.registry.kind import Kind
from learners.registry.lazy_imports import LazyTable
from learners.schema import Schema
from learners.schema.checks import check_schema

if TYPE_CHECKING:
    from learners.orders.model import OrderModel

NUMBERS_AND_TEXT = "biufSU"  # kinds of numpy's types
_CLASSIFIERS, _CIRCUITS = "learners.registry.kinds.classifier_kinds", "learners.registry.kinds.circuit_kinds"
KINDS: MutableMapping[str, Kind] = LazyTable(
    {
        "lookup": f"{_CLASSIFIERS}:LOOKUP",
        "averaged-trees": f"{_CLASSIFIERS}:AVERAGED_TREES",
        "ensemble": f"{_CLASSIFIERS}:ENSEMBLE",
        "boosted-trees": f"{_CLASSIFIERS}:BOOSTED_TREES",
        "circuit": f"{_CIRCUITS}:CIRCUIT",
        "bayesian circuit": f"{_CIRCUITS}:SAMPLED_CIRCUIT",
        "gaussian mixture": f"{_CIRCUITS}:GAUSSIAN_MIXTURE",
        "network": f"{_CIRCUITS}:NETWORK",
        "linear network": f"{_CIRCUITS}:LINEAR_NETWORK",
        "orders": "learners.registry.kinds.structure_kinds:STRUCTURES",
    }
)


def kind_of(model: Model) -> Kind:
    """Return the kind of a model. Raises LearnerError if the table lacks it."""
    if model.kind not in KINDS:
        raise LearnerError(f"Models of kind {model.kind!r} are not in the table of kinds ({', '.join(KINDS)}).")
    return KINDS[model.kind]


def structure_posterior(model: Model) -> OrderModel | None:
    """Return the model as a posterior over structures, which answers queries about edges and graphs; None for other kinds."""
    kind = kind_of(model)
    return kind.structures(model) if kind.can("structures") else None


def add_derived_arrays(header: Mapping[str, object], arrays: Arrays) -> Arrays:
    """Recompute the derived arrays, named in a model's header, that are missing."""
    derived = cast("Mapping[str, list[str]]", header).get("derived", [])
    if all(name in arrays for name in derived):
        return arrays
    whole = load_model(header, arrays).to_arrays()[1]
    return dict(arrays) | {name: whole[name] for name in derived}


def load_model(header: Mapping[str, object], arrays: Arrays, *, is_trusted: bool = True) -> Model:
    """Load a model from the output of `Model.to_arrays`.

    `is_trusted`: whether fewpass wrote the arrays. If not, every index is checked first, because kernels do not
    check bounds. Raises LearnerError if this version of fewpass does not know the kind, or untrusted arrays are
    invalid.
    """
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise LearnerError(f"A model of kind {kind!r} needs another version of fewpass (known: {', '.join(KINDS)}).")
    if not is_trusted:
        schema = Schema.from_json(cast(Header, header)["schema"])
        check_schema(schema)
        check_model_facts(schema, header.get("facts"))
        for name, array in arrays.items():
            if not array.dtype.isnative or array.dtype.kind not in NUMBERS_AND_TEXT:
                raise InvalidArray(name, f"has the type {array.dtype.str!r}, which no kernel reads")
        if (check := KINDS[kind].check) is not None:
            check(header, arrays)
    return KINDS[kind].model.from_arrays(header, arrays)
