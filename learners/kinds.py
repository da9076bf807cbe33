"""The one table from a model's kind to its class, to read stored models back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learners.baselines.boosted import BoostedModel
from learners.circuits.model import CircuitModel
from learners.classifiers.lookup import LookupModel
from learners.errors import LearnerError
from learners.model import Arrays, Model

KINDS: dict[str, type[Any]] = {model.kind: model for model in (LookupModel, BoostedModel, CircuitModel)}


def load_model(header: Mapping[str, Any], arrays: Arrays) -> Model:
    """The model of `Model.to_arrays`.

    Raises
    ------
    LearnerError
        If this version of fewpass does not know the kind.
    """
    kind = header.get("kind")
    if kind not in KINDS:
        raise LearnerError(f"A model of kind {kind!r} needs another version of fewpass (known: {', '.join(KINDS)}).")
    model: Model = KINDS[kind].from_arrays(header, arrays)
    return model
