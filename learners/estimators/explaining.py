"""Methods of estimators on rows: classes, intervals and explanations; and on queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from learners.answer_checks import check_answer_distributions
from learners.circuits.model import CircuitModel
from learners.errors import InvalidParameter, NoClass
from learners.estimators.arguments import with_argument_checks, with_keyword_hints
from learners.estimators.columns import KnownColumns, issue_column_warning
from learners.estimators.labels import text_array
from learners.kernels.arrays import Array, Floats
from learners.models import explanation
from learners.models.explanation import Explanation
from learners.models.model import Model
from learners.models.query import Query, check_query_type
from learners.registry.importance import column_importances
from learners.registry.networks.network_answers import answer_network_queries, compile_model_circuit
from learners.schema import Chunk


class Explaining:
    """Prediction and explanation methods of estimators with a class."""

    def predict_proba(self, X: Any) -> Floats:
        """Predict P(class | attributes), (n_rows, n_classes) float64, in the order of `classes_`.

        Raises AttributeError if no class was learned; SchemaError or InvalidPrediction.
        """
        model = self._known().model
        parts = [model.predict_proba(chunk) for chunk in self._chunks(X)]
        return check_answer_distributions(np.concatenate([*parts, np.empty((0, model.schema.n_classes))]))

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of each row, (n_rows,). Raises the errors of `predict_proba`."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    @with_argument_checks
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of the class probabilities, (n_rows, n_classes) float64 each.

        The bounds cover the sampling error of the training rows at this level, if the learned structure, weights and trees are right. On
        known networks, bounds at 0.9 held the true probability of 2 to 88 % of complete rows: see docs/results/intervals.md. A
        `CircuitPosterior` gives central credible intervals. Single networks need estimator hdp or hdp-map.

        Raises InvalidParameter if the model has no posterior, or the level is not between 0 and 1.
        """
        model = self._known().model
        if not 0 < level < 1:
            raise InvalidParameter("level", level, "a probability above 0 and below 1")
        intervals = [model.credible_intervals(chunk, level) for chunk in self._chunks(X)]
        nobody = np.empty((0, model.schema.n_classes))
        low, high = (np.concatenate([*(ends[which] for ends in intervals), nobody]) for which in (0, 1))
        return low, high

    def explain(self, X: Any) -> Explanation:
        """Explain the prediction of each row; see `learners.explain`.

        Parameters
        ----------
        X : table
            As of `predict_proba`.

        Returns
        -------
        Explanation
            Contributions (n_rows, n_features_in_) are those of the columns in the order of training, 0 where the model does not
            use one; classes are places in `classes_`.

        Raises
        ------
        NoClass
            If no class was learned.
        SchemaError, InvalidPrediction
        """
        known = self._known()
        if known.model.schema.target is None:
            raise NoClass
        parts = [explanation.explain(known.model, chunk) for chunk in self._chunks(X)]
        if not parts:
            schema = known.model.schema
            numbers = np.empty((len(schema.continuous), 0)) if schema.continuous else None
            nobody = Chunk(np.empty((schema.n_attributes, 0), schema.code_dtype), None, numbers)
            parts = [explanation.explain(known.model, nobody)]
        *others, contributions = (np.concatenate(each) for each in zip(*parts, strict=True))
        place = {name: i for i, name in enumerate(known.names)}
        of_columns = np.zeros((len(contributions), len(known.names)))
        of_columns[:, [place[name] for name in known.attributes]] = contributions
        return Explanation._make([*others, of_columns])

    @property
    def feature_importances_(self) -> Floats:
        """Share of each column in the class information of all columns, (n_features_in_,) float64."""
        known = self._known()
        return column_importances(known.model, known.names)

    def _know(self, model: Model, names: Sequence[str], *, is_named: bool) -> None:
        """Set the fitted attributes of a model, its columns in order, and its classes, if any."""
        self.model_ = model
        self._columns = KnownColumns(type(self).__name__, model, names, is_named)
        for name in ("classes_", "feature_names_in_"):
            vars(self).pop(name, None)
        if model.schema.target is not None:
            schema = model.schema
            is_text = schema.class_type == "string"
            self.classes_ = text_array(schema.classes) if is_text else np.array(schema.class_values())
        if is_named:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.input_tags.sparse = True
        return tags

    def _known(self) -> KnownColumns:
        """Return the model and its columns; raises if the estimator is not fitted."""
        try:
            return self._columns
        except AttributeError:
            check_is_fitted(self, "model_")
            raise

    @abstractmethod
    def _chunks(self, X: Any) -> Iterator[Chunk]:
        """Yield the rows of a table as codes, in chunks."""


def warn_of_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, after a ColumnWarning for each warning of the model and each number of its evidence that is read as an
    interval.
    """
    for words in answer.get("warnings", []):
        issue_column_warning(words)
    for name, interval in answer.get("stands_for", {}).items():
        issue_column_warning(f"{name}: the evidence is read as its interval, {interval}.")
    return answer


QUERY_HINTS = dict.fromkeys(
    ("of", "given", "evidence", "columns", "variables"),
    "pass a query, such as fewpass.Conditional(['column'], {'other': value})",
)


class Querying:
    """Mixin for estimators whose network, or joint member, answers queries."""

    _circuit: tuple[Model, CircuitModel] | None = None

    def _compiled(self) -> CircuitModel:
        """Compile the model to a circuit, once."""
        model: Model = vars(self)["model_"]
        if self._circuit is None or self._circuit[0] is not model:
            self._circuit = (model, compile_model_circuit(model))
        return self._circuit[1]

    @with_keyword_hints(QUERY_HINTS)
    def query(self, query: Query) -> dict[str, Any]:
        """Answer a `Marginal`, `Conditional`, `Sample`, `Map`, `Impute` or `Surprise` query; see
        `registry.networks.network_answers.answer_network_queries`.

        Raises InvalidParameter, UnknownColumn, InvalidEvidence, ImpossibleEvidence, SchemaError, NetworkTooLarge or TablesTooLarge.
        """
        check_is_fitted(self, "model_")
        check_query_type(query)
        return warn_of_answer(answer_network_queries(vars(self)["model_"], [query], self._compiled)[0])
