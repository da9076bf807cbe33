"""The base of the estimator of posteriors over network structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from learners.circuits.model import CircuitModel
from learners.errors import LearnerError
from learners.estimators.arguments import (
    COMMON,
    check_argument,
    check_common_arguments,
    set_estimator_constructor,
    train_estimator_model,
    with_argument_checks,
)
from learners.estimators.explaining import Querying, warn_of_answer
from learners.estimators.released_names import released_estimator as __getattr__  # noqa: F401
from learners.estimators.table_inputs import is_source_or_paths, open_source_or_paths, rows_as_record_batches
from learners.kernels.arrays import Floats
from learners.models.estimation import Average
from learners.models.query import AnyQuery, StructureQuery, check_query_type
from learners.orders.model import OrderModel
from learners.orders.parameters import OrderParameters
from learners.orders.queries.predictive import GraphAverage
from learners.passes.engine import OnProgress
from learners.passes.row_rules import apply_row_weight_rule
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.registry.networks.network_answers import answer_network_queries
from learners.registry.networks.order_circuits import order_circuit
from learners.schema import Schema

if TYPE_CHECKING:
    import networkx


class NetworkxMissing(LearnerError, ImportError):
    """networkx is not installed."""

    def __init__(self) -> None:
        super().__init__("A networkx graph needs networkx, which is not installed: pip install networkx.")


class StructureEstimator(Querying, BaseEstimator):
    """Base class of the learner of network structures as a scikit-learn estimator."""

    _learner: ClassVar[str]
    edge_log_odds: Mapping[str, float] | None
    schema: Schema | None
    columns: Mapping[str, Any] | None
    threads: int | None
    verbose: bool

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_learner" in vars(cls):
            without = ("target", "holdout_by")
            set_estimator_constructor(cls, OrderParameters, positional=("score", "method"), without=without)

    def fit(self, X: Any, y: None = None, on_progress: OnProgress | None = None) -> Self:
        """Learn the posterior from a table.

        Parameters
        ----------
        X : table
            As of the classifiers: paths, a `Source`, frames, tables, arrays.
        y : None
            Ignored, since there is no class.
        on_progress : callable, optional
            Called with a `Progress`; raising in it stops.

        Raises
        ------
        InvalidParameter, SourceError, SchemaError, UnknownColumn, EmptyData, TooFewRows
        """
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name not in COMMON}
        check_common_arguments(self)
        check_argument("edge_log_odds", self.edge_log_odds, "Mapping | None")
        parameters["edge_log_odds"] = dict(self.edge_log_odds or {})
        learner = recipes.learner(self._learner, parameters, None, self.schema, self.columns)
        source = apply_row_weight_rule(self._source_of(X), self.columns)
        model = train_estimator_model(self, learner, source, on_progress)
        assert isinstance(model, OrderModel)
        return self._taking(model)

    @classmethod
    def of_model(
        cls, model: OrderModel, parameters: Mapping[str, Any], names: Sequence[str], *, is_named: bool = True
    ) -> Self:
        """Create a fitted estimator from a posterior that was learned elsewhere; the column names come from the model."""
        own = cls._get_param_names()
        return cls(**{name: value for name, value in parameters.items() if name in own})._taking(model)

    def _taking(self, model: OrderModel) -> Self:
        """Set the fitted attributes from a model and return the estimator."""
        self.model_ = model
        self.feature_names_in_ = model.names
        self.edge_probabilities_: Floats = model.probabilities
        self.coverage_ = model.posterior.facts(model.posterior.coverage)
        return self

    def _source_of(self, X: Any) -> Source:
        return (
            open_source_or_paths(X, self.schema, self.columns)
            if is_source_or_paths(X)
            else rows_as_record_batches(X, self).source()
        )

    def query(self, query: AnyQuery) -> dict[str, Any]:
        """Answer an `Edges`, `Graph`, `Graphs`, `Paths`, `Effects` or `Score` query; see
        `learners.orders.queries.queries.GraphQueries.answer`.

        All other queries are answered with the most probable graph and its expected parameters, or with the query's
        `graph`: see `registry.networks.network_answers.answer_network_queries`.

        Raises UnknownColumn, InvalidParameter, ImpossibleEdges, NotGaussian or NoRows; NoTables or NetworkTooLarge if the
        most probable graph is too large to answer.
        """
        check_query_type(query, AnyQuery)
        if isinstance(query, StructureQuery):
            return self._model().answer([query])[0]
        return warn_of_answer(answer_network_queries(self._model(), [query], self.network)[0])

    @with_argument_checks
    def score_samples(self, X: Any, average: Average | None = None) -> Floats:
        """Compute the log density of each row, given the rows of `fit`, with parameters integrated out, (n,) float64.

        `average`: the graphs to average over; by default the most probable graph alone. Raises UnknownColumn,
        InvalidParameter, ImpossibleEdges, NoRows or NoTables.
        """
        model, source = self._model(), self._source_of(X)
        if average is None:
            parts = [model.log_likelihood(batch) for batch in source.batches()]
        else:
            over = GraphAverage(model.graph_queries, average, source.n_rows)
            parts = [over.log_likelihood(model.rows_of(batch)) for batch in source.batches()]
        return np.concatenate([np.empty(0), *parts])

    def network(self) -> CircuitModel:
        """Compile the most probable graph to a model of the joint distribution, once."""
        self._model()
        return self._compiled()

    def order_circuit(self) -> CircuitModel:
        """Return the posterior over graphs as a circuit whose variables are the columns' parent sets; see
        `order_circuits`.

        Raises TooManyParentSets.
        """
        return order_circuit(self._model())

    def to_networkx(self) -> networkx.DiGraph:
        """Return the most probable graph, with the `probability` of each edge. Raises NetworkxMissing."""
        try:
            import networkx
        except ImportError as error:
            raise NetworkxMissing from error
        graph = networkx.DiGraph()
        model = self._model()
        graph.add_nodes_from(model.names)
        graph.add_edges_from((parent, child, {"probability": p}) for parent, child, p in model.best_edges())
        return graph

    def _model(self) -> OrderModel:
        check_is_fitted(self, "model_")
        return self.model_
