"""Queries to the network of a classifier, in the words of its columns."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from learners.circuits.model import CircuitModel
from learners.models.model import Model
from learners.models.query import Query, check_kind
from learners.registry.networks.network_answers import answer_all
from learners.registry.networks.of_models import compiled


class Querying:
    """An estimator whose network, or that of its joint member, answers queries."""

    _circuit: tuple[Model, CircuitModel] | None = None

    def _compiled(self) -> CircuitModel:
        """The model as a circuit, made once."""
        model: Model = vars(self)["model_"]
        if self._circuit is None or self._circuit[0] is not model:
            self._circuit = (model, compiled(model))
        return self._circuit[1]

    def query(self, query: Query) -> dict[str, Any]:
        """The answer to `Marginal`, `Conditional`, `Sample`, `Map`, `Impute` or `Surprise`, see `registry.networks.network_answers.answer_all`.

        Raises InvalidParameter, UnknownColumn, InvalidEvidence, ImpossibleEvidence, SchemaError, NetworkTooLarge or TablesTooLarge.
        """
        check_is_fitted(self, "model_")
        check_kind(query)
        return answer_all(vars(self)["model_"], [query], self._compiled)[0]
