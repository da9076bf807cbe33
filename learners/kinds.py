"""The one table from a model's kind to its class, to read stored models back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learners.baselines.boosted import BoostedModel, check_booster
from learners.circuits.model import CircuitModel
from learners.classifiers.checks import check_arrays
from learners.classifiers.lookup import LookupModel
from learners.errors import LearnerError
from learners.model import Arrays, Model
from learners.schema import Schema
from learners.schema.checks import check_schema

KINDS: dict[str, type[Any]] = {model.kind: model for model in (LookupModel, BoostedModel, CircuitModel)}
# Circuits are checked whenever they are made.
CHECKS = {LookupModel.kind: check_arrays, BoostedModel.kind: check_booster}


def load_model(header: Mapping[str, Any], arrays: Arrays, *, is_trusted: bool = True) -> Model:
    """The model of `Model.to_arrays`.

    Parameters
    ----------
    header, arrays
    is_trusted : bool
        Whether they are as we wrote them. If not, every index is looked at first: kernels would follow it anywhere.

    Raises
    ------
    LearnerError
        If this version of fewpass does not know the kind, or what is not trusted is no such model.
    """
    kind = header.get("kind")
    if kind not in KINDS:
        raise LearnerError(f"A model of kind {kind!r} needs another version of fewpass (known: {', '.join(KINDS)}).")
    if not is_trusted:
        check_schema(Schema.from_json(header["schema"]))
        if kind in CHECKS:
            CHECKS[kind](header, arrays)
    model: Model = KINDS[kind].from_arrays(header, arrays)
    return model
