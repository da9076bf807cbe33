"""The estimators: learners with the interface of scikit-learn, which can be saved, published, plotted and reported on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sklearn.utils.validation import check_is_fitted

from learners.circuits.parameters import BY_COLUMN, CircuitParameters, GibbsParameters
from learners.errors import InvalidParameter, LearnerError, NoClass
from learners.estimators.arguments import COMMON, with_argument_checks
from learners.estimators.circuits import RENAMED, CircuitEstimator
from learners.estimators.classifier import Classifier
from learners.estimators.columns import issue_column_warning
from learners.estimators.explaining import Querying
from learners.estimators.structure_posterior import StructureEstimator
from learners.evaluation.model_report import ModelReport
from learners.models.model import Model
from learners.orders.formats.network_files import choose_network_file_format
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.registry.discrete_networks import model_to_network_text
from learners.registry.model_kinds import KINDS
from learners.registry.sql.dialects import DialectName
from learners.registry.sql.script import is_too_large_for_script, sql_logs_path, sql_script, write_log_probabilities
from service.product.outputs import output_draft, write_output

if TYPE_CHECKING:
    from fewpass.plotting import Plots
    from fewpass.report_pages import Page
    from service.product.versions.fitted_models import Fitted


class Kept:
    """Mixin that saves, reports, plots and exports the model of a fitted estimator."""

    _learner: ClassVar[str]

    @with_argument_checks
    def save(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the model to one file, as `fewpass models export` does; `fewpass models import` accepts it.

        The file appears when it is whole. It holds the model and the columns, not the rows: `fewpass.load` gives an estimator
        that answers as this one, bit for bit, and has nothing to add other rows to.

        Parameters
        ----------
        path : str or Path
        replace : bool
            Replace an existing file of that name.

        Raises
        ------
        InvalidRequest
            If the file exists.
        """
        from service.product.versions import fitted_models

        fitted_models.save_fitted_model(fitted_of(self), Path(path), replace=replace)

    def report(self, X: Any, y: Any = None) -> Page:
        """Report how good the model is on rows whose class is known: verdict, losses, calibration, confusion,
        importances, excluded columns.

        A notebook shows the page; `page.save("report.html")` writes it, `page.numbers` holds what it shows.

        Parameters
        ----------
        X : table
            As of `fit`: best rows that training has not seen.
        y : str or (n,) array-like, optional
            The class column's name, or the classes themselves (not with paths); by default the class column of `X`.

        Raises
        ------
        NoClass
            If no class was learned.
        InvalidParameter, SourceError, SchemaError, UnknownColumn, EmptyData
        """
        from fewpass.report_pages import Page
        from service.product.views.reports import report_page

        numbers = self._report_numbers(X, y)
        name = type(self).__name__
        html = report_page(numbers, title=f"Report of {name}", learner=repr(self), call="model.report(X, y)")
        return Page(numbers, html)

    @property
    def plot(self) -> Plots:
        """Matplotlib pictures: `structure`, `calibration`, `importance`, `drift` and `trace`."""
        from fewpass.plotting import Plots

        return Plots(self, fitted_of(self))

    def _report_numbers(self, X: Any, y: Any) -> ModelReport:
        from service.product.inference.scoring import measure_model

        check_is_fitted(self, "model_")
        model: Model = vars(self)["model_"]
        if model.schema.target is None:
            raise NoClass
        measured = measure_model(model, self._rows_to_measure(X, y), is_reported=True)
        assert measured.report is not None
        for words in measured.warnings:
            issue_column_warning(words)
        return measured.report

    def _rows_to_measure(self, X: Any, y: Any) -> Source:
        """Return the rows with their class under the model's name for the target."""
        target = vars(self)["model_"].schema.target
        y = target if y is None else y
        named: str | None
        if isinstance(self, Classifier):
            source, named, _ = self._source_of(X, y, None, is_more=True)
        else:
            source, named, _ = cast(CircuitEstimator, self)._source_of(X, y)
        if named != target:
            raise InvalidParameter("y", named, because=f"the model was fitted with the class column {target!r}")
        return source

    @with_argument_checks
    def to_network(self, path: str | Path | None = None, *, format: str | None = None) -> str:
        """Return the network as text for other programs, and write it to `path` if given.

        For an ensemble this is the joint member, for a posterior over structures the most probable graph.

        Parameters
        ----------
        path : str or Path, optional
            Its extension sets the format: .bif, .xmlbif (also .bifxml and .xml) or .xdsl.
        format : str, optional
            "bif", "xmlbif" or "xdsl"; without a path by default "bif".

        Raises
        ------
        NoNetwork
            If the model is not a network.
        NoTables, TablesTooLarge
            If its tables are too large.
        InvalidNetwork
            If columns are numbers, as in linear Gaussian networks, which only BIF can hold.
        InvalidParameter
        """
        check_is_fitted(self, "model_")
        text = model_to_network_text(vars(self)["model_"], "fewpass", choose_network_file_format(path, format))
        if path is not None:
            write_output(Path(path), lambda: text, replace=True)
        return text

    @with_argument_checks
    def to_sql(
        self,
        table: str,
        *,
        dialect: DialectName = "duckdb",
        view: str = "fewpass",
        key: str | Sequence[str] = (),
        absent: str | Sequence[str] = (),
        path: str | Path | None = None,
    ) -> str:
        """Return the model as SQL that answers every row of a table as `predict_proba` does, and write it to `path` if
        given.

        The script makes tables and a view with the columns `prediction` and `probability_<class>`.

        Parameters
        ----------
        table : str
            Whose rows are answered; "schema.table" if need be. Its columns are called and typed as in training.
        dialect : str
            "duckdb", "postgres", "sqlite", "bigquery", "snowflake" or "spark".
        view : str
            Name of the view; the names of the tables begin with it.
        key : str or sequence of str
            Columns of the table to show beside the answers; by default the model's columns.
        absent : str or sequence of str
            Columns of the model that the table does not have.
        path : str or Path, optional
            The table of log probabilities of a large model becomes a Parquet file beside it, which DuckDB reads.

        Raises
        ------
        NoSQL
            If the model is neither a network nor a pool of networks.
        TooLargeForSQL
            If its tables are too large.
        UnknownDialect, UnsupportedColumn, UnwritableText, UnknownColumn, InvalidParameter
        """
        check_is_fitted(self, "model_")
        keys, without = ((given,) if isinstance(given, str) else given for given in (key, absent))
        model, logs = vars(self)["model_"], None
        if path is not None and dialect == "duckdb" and is_too_large_for_script(model):
            logs = sql_logs_path(Path(path))
        logs_path = None if logs is None else str(logs)
        text = sql_script(model, name=view, table=table, dialect=dialect, key=keys, absent=without, logs_path=logs_path)
        if logs is not None:
            with output_draft(logs, replace=True) as draft:
                write_log_probabilities(model, draft)
        if path is not None:
            write_output(Path(path), lambda: text, replace=True)
        return text


class FewPassClassifier(Kept, Querying, Classifier):
    """Classifier of the default learner `auto`: Bayesian networks, corrected by boosted trees.

    `model_.facts["choice"]` describes what was learned and why.
    """

    _learner = "auto"


class ESKDB(Kept, Querying, Classifier):
    """An ensemble of selective networks with random cut points and discriminative weights: two passes after the schema."""

    _learner = "eskdb"


class NB(Kept, Querying, Classifier):
    """Naive Bayes: one pass after the schema."""

    _learner = "nb"


class TAN(Kept, Querying, Classifier):
    """Tree-augmented naive Bayes (Friedman, Geiger, Goldszmidt 1997): two passes after the schema."""

    _learner = "tan"


class KDB(Kept, Querying, Classifier):
    """k-dependence Bayes (Sahami 1996): two passes after the schema."""

    _learner = "kdb"


class SKDB(Kept, Querying, Classifier):
    """Selective kDB (Martínez et al. 2016): three passes after the schema."""

    _learner = "skdb"


class XGBoost(Kept, Classifier):
    """XGBoost on the same columns: the baseline of `fewpass train --learner xgboost`."""

    _learner = "xgboost"


class SumProductNetwork(Kept, CircuitEstimator):
    """A sum-product network over the columns of a table, including the class if there is one.

    `learning` selects the method: "em", "adf" or "bmm". `CircuitPosterior` samples circuits.

    Attributes
    ----------
    model_ : CircuitModel
    classes_ : (n_classes,) array
        Where there is a class.
    feature_names_in_ : (n_columns,) array of str
        Where the columns had names.
    n_features_in_ : int

    Examples
    --------
    >>> from fewpass import Conditional, SumProductNetwork
    >>> orders = {"weather": ["rain", "sun"] * 30, "day": ["Mon", "Tue", "Wed"] * 20, "late": ["yes", "no"] * 30}
    >>> joint = SumProductNetwork(states=2).fit(orders)
    >>> answer = joint.query(Conditional("weather", {"late": "yes"}))
    >>> max(answer["distributions"]["weather"].items(), key=lambda each: each[1])[0]
    'rain'
    """

    _learner = "spn"
    _parameters = CircuitParameters

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if state.get("learning") == "gibbs":  # pickled by a release up to 0.2.0
            self.__class__ = CircuitPosterior
            self.leaves = state["leaves"] or BY_COLUMN


class CircuitPosterior(Kept, CircuitEstimator):
    """A posterior over circuits: answers come with standard errors and intervals.

    Needs `pip install 'fewpass[gibbs]'`.

    Attributes
    ----------
    model_ : BayesianCircuit
        The other attributes are those of `SumProductNetwork`.

    Examples
    --------
    >>> from fewpass import CircuitPosterior, Conditional
    >>> orders = {"weather": ["rain", "sun"] * 30, "day": ["Mon", "Tue", "Wed"] * 20, "late": ["yes", "no"] * 30}
    >>> posterior = CircuitPosterior(iterations=20, draws=10).fit(orders)
    >>> answer = posterior.query(Conditional("weather", {"late": "yes"}))
    >>> low, high = answer["intervals"]["weather"]["rain"]
    >>> low < answer["distributions"]["weather"]["rain"] < high
    True
    """

    _learner = "gibbs"
    _parameters = GibbsParameters


class StructurePosterior(Kept, StructureEstimator):
    """Posterior probability of each edge, path and effect between the columns of a table, averaged over graphs.

    Attributes
    ----------
    model_ : OrderModel
    feature_names_in_ : list of str
        The columns that are nodes, in schema order.
    edge_probabilities_ : (d, d) float64
        [i, j] the probability of the edge from column i to column j.
    coverage_ : dict
        Coverage of the posterior, as in answers.

    References
    ----------
    Wang, Wicker, Kwiatkowska (2022), Tractable uncertainty for structure learning; Koivisto, Sood (2004).

    Examples
    --------
    >>> import numpy as np
    >>> from fewpass import StructurePosterior
    >>> rng = np.random.default_rng(0)
    >>> cause, other = rng.normal(size=200), rng.normal(size=200)
    >>> table = {"cause": cause, "effect": cause + rng.normal(size=200), "other": other}
    >>> posterior = StructurePosterior().fit(table)
    >>> edges = posterior.edge_probabilities_
    >>> bool(edges[0, 1] + edges[1, 0] > 0.99)  # an edge between them, either way
    True
    """

    _learner = "orders"


_CLASSES = (
    FewPassClassifier,
    ESKDB,
    NB,
    TAN,
    KDB,
    SKDB,
    XGBoost,
    SumProductNetwork,
    CircuitPosterior,
    StructurePosterior,
)


def _estimator_class(learner: str) -> type[Any]:
    """Create the class of a learner that has none above: a classifier named after it, such as BestAttribute."""
    name = learner.replace("-", " ").title().replace(" ", "")
    words = f"{recipes.learner_recipe(learner).title.capitalize()}."
    return type(name, (Kept, Querying, Classifier), {"_learner": learner, "__doc__": words, "__module__": __name__})


ESTIMATORS: dict[str, type[Any]] = {cls._learner: cls for cls in _CLASSES}
ESTIMATORS |= {name: _estimator_class(name) for name in recipes.LEARNERS if name not in ESTIMATORS}
globals().update({cls.__name__: cls for cls in ESTIMATORS.values()})  # also what pickle looks up


def fitted_of(estimator: Any) -> Fitted:
    """Convert a fitted estimator to the form stored in files and registries.

    Raises
    ------
    LearnerError
        If it is not an estimator of fewpass.
    NotFittedError
    """
    from service.product.versions.fitted_models import Fitted, json_learner_parameters

    if not issubclass(type(estimator), Kept):  # not isinstance, after which its type would be Kept alone
        raise LearnerError(
            f"{type(estimator).__name__} is not an estimator of fewpass. Pass one of {', '.join(__all__)}."
        )
    learner: str = estimator._learner
    check_is_fitted(estimator, "model_")
    own = {theirs: ours for ours, theirs in RENAMED.items()} if isinstance(estimator, CircuitEstimator) else {}
    values = {own.get(name, name): value for name, value in estimator.get_params(deep=False).items()}
    parameters = {name: value for name, value in values.items() if name not in COMMON and value is not None}
    known = getattr(estimator, "_columns", None)
    columns, is_named = (tuple(estimator.feature_names_in_), True) if known is None else (known.names, known.is_named)
    return Fitted(estimator.model_, learner, json_learner_parameters(learner, parameters), columns, is_named)


def estimator_of(fitted: Fitted) -> Any:
    """Return the estimator of a stored model; a model without a learner, such as an imported network, gets the
    estimator of its kind.

    Raises
    ------
    LearnerError
        If this version of fewpass has no estimator for it.
    """
    of_kind = dict.fromkeys(("circuit", "bayesian circuit", "gaussian mixture", "network", "linear network"), "spn")
    recorded, parameters = recipes.current_recipe(fitted.learner, fitted.parameters)
    learner = recorded if recorded in ESTIMATORS else of_kind.get(fitted.model.kind)
    if learner is None or fitted.model.kind not in KINDS:
        raise LearnerError(f"Models of learner {fitted.learner!r} need another version of fewpass.")
    return ESTIMATORS[learner].of_model(fitted.model, parameters, fitted.columns, is_named=fitted.is_named)


__all__ = [estimator.__name__ for estimator in ESTIMATORS.values()]
