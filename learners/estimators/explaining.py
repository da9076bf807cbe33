"""Why an estimator answers as it does: contributions of the columns row by row, and over all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from learners.errors import NoClass
from learners.estimators.columns import KnownColumns
from learners.kernels.arrays import Floats
from learners.models import explanation
from learners.models.explanation import Explanation
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

    @abstractmethod
    def _known(self) -> KnownColumns:
        """The model and its columns."""

    @abstractmethod
    def _chunks(self, X: Any) -> Iterator[Chunk]:
        """The rows of a table as codes, a part at a time."""
