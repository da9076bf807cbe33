"""Why an estimator answers as it does: contributions of the columns row by row, and over all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from learners.errors import NoClass
from learners.estimators.columns import KnownColumns
from learners.kernels.arrays import Floats
from learners.models import explanation
from learners.models.explanation import Explanation
from learners.models.model import Model
from learners.registry.importance import importances
from learners.schema import Chunk


class Explaining:
    """What classifiers tell of their answers."""

    def explain(self, X: Any) -> Explanation:
        """Why each row gets its class; see `learners.explain`.

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
            nobody = Chunk(np.empty((known.model.schema.n_attributes, 0), known.model.schema.code_dtype), None)
            parts = [explanation.explain(known.model, nobody)]
        *others, contributions = (np.concatenate(each) for each in zip(*parts, strict=True))
        place = {name: i for i, name in enumerate(known.names)}
        of_columns = np.zeros((len(contributions), len(known.names)))
        of_columns[:, [place[name] for name in known.attributes]] = contributions
        return Explanation._make([*others, of_columns])

    @property
    def feature_importances_(self) -> Floats:
        """(n_features_in_,) float64: the share of each column in what the columns tell of the class."""
        known = self._known()
        return importances(known.model, known.names)

    def _know(self, model: Model, names: Sequence[str], *, is_named: bool) -> None:
        """Become the estimator of a model of some columns, in whose order they are, and of its classes if it has any."""
        self.model_ = model
        self._columns = KnownColumns(type(self).__name__, model, names, is_named)
        for name in ("classes_", "feature_names_in_"):
            vars(self).pop(name, None)
        if model.schema.target is not None:
            self.classes_ = np.array(model.schema.class_values())
        if is_named:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def _known(self) -> KnownColumns:
        """The model and its columns."""

    @abstractmethod
    def _chunks(self, X: Any) -> Iterator[Chunk]:
        """The rows of a table as codes, a part at a time."""
