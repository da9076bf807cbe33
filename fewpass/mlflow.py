"""Models in MLflow: logged with signature and example, served by MLflow, and loaded as the original estimators.

>>> import fewpass.mlflow
>>> with mlflow.start_run():
...     fewpass.mlflow.log_model(model, input_example=frame.head(), registered_model_name="income")
>>> fewpass.mlflow.load_model("models:/income/1")
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import pandas as pd

from fewpass.estimators import Kept, fitted_of
from fewpass.lifecycle import load
from learners.estimators.circuits import CircuitEstimator
from learners.estimators.classifier import Classifier
from service.product.views.mlflow_models import (
    FILE,
    LOG_LIKELIHOOD,
    MLflowMissing,
    MLflowRefused,
    NoAnswers,
    NotOurs,
    downloaded_mlflow_model,
    import_mlflow,
    log_model_to_mlflow,
    log_training_to_mlflow,
)

__all__ = [
    "MLflowMissing",
    "MLflowRefused",
    "NoAnswers",
    "NotOurs",
    "RowAnswers",
    "autolog",
    "load_model",
    "log_fit",
    "log_model",
]

EXAMPLE_ROWS = 5


class RowAnswers:
    """Adapter for MLflow's `pyfunc`: a frame in, a frame out.

    Parameters
    ----------
    estimator : estimator
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def predict(self, model_input: Any, params: Any = None) -> pd.DataFrame:
        """Return `prediction` and `probability_<class>` of each row, as `fewpass predict` does; `log_likelihood`
        without a class.
        """
        del params
        if self.estimator.model_.schema.target is None:
            return pd.DataFrame({LOG_LIKELIHOOD: self.estimator.score_samples(model_input)})
        probabilities = self.estimator.predict_proba(model_input)
        classes = self.estimator.classes_
        columns = {
            f"probability_{name}": probabilities[:, i] for i, name in enumerate(self.estimator.model_.schema.classes)
        }
        return pd.DataFrame({"prediction": classes[probabilities.argmax(axis=1)]} | columns)


def log_model(
    model: Any, name: str = "model", *, input_example: Any = None, registered_model_name: str | None = None, **more: Any
) -> Any:
    """Log a fitted estimator to the active run as a `pyfunc` model, stored in the file format of `save` and not as a
    pickle.

    Parameters
    ----------
    model : estimator
        Any but posteriors over structures.
    name : str
        Name of the model in the run.
    input_example : pandas.DataFrame, optional
        A few rows without classes, which are logged beside the model. Its signature lets every column be missing.
    registered_model_name : str, optional
        Adds a version of that name to MLflow's registry.
    **more
        Passed on to `mlflow.pyfunc.log_model`.

    Returns
    -------
    mlflow.models.model.ModelInfo

    Raises
    ------
    MLflowMissing
    NoAnswers
        If the model answers no rows.
    """
    import_mlflow()
    if not isinstance(model, Classifier | CircuitEstimator):
        fitted_of(model)  # which refuses what is no estimator of ours
        raise NoAnswers(type(model).__name__)
    if input_example is not None:
        input_example = input_example.head(EXAMPLE_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / FILE)
        more["input_example"] = input_example
        return log_model_to_mlflow(Path(folder) / FILE, model.model_, name, registered_model_name, **more)


def load_model(model_uri: str) -> Any:
    """Load an estimator logged by `log_model`, checked as `fewpass.load` does.

    Parameters
    ----------
    model_uri : str
        Such as "models:/income/3", "models:/income@champion" or "runs:/…/model".

    Raises
    ------
    MLflowMissing, MLflowRefused
    NotOurs
        If something else has logged the model.
    CorruptFile
    """
    with downloaded_mlflow_model(model_uri) as path:
        return load(path)


def log_fit(model: Any, X: Any = None, y: Any = None, **more: Any) -> Any:
    """Log a training to the active run: its parameters and the model, and with rows their metrics and the report.

    Parameters
    ----------
    model : estimator
    X, y : table and classes, optional
        As `model.report` takes them: best rows that training has not seen.
    **more
        Passed on to `log_model`.

    Raises
    ------
    As `log_model` and `model.report`.
    """
    _log_facts(model, X, y)
    return log_model(model, **more)


def autolog(*, disable: bool = False) -> None:
    """Log each later `fit` of a fewpass estimator as an MLflow run, nested in the active run if there is one.

    It logs the parameters, the rows, the model, and of a classifier the metrics and the report on the rows that it has
    learned from: those metrics are called `training_…`, and are better than those of new rows.

    Parameters
    ----------
    disable : bool
        No longer.

    Raises
    ------
    MLflowMissing
    """
    mlflow = import_mlflow()
    if "fit" in vars(Kept):
        del Kept.fit  # type: ignore[attr-defined]
    if disable:
        return

    @wraps(Classifier.fit)
    def fit(self: Any, X: Any, y: Any = None, **more: Any) -> Any:
        super(Kept, self).fit(X, y, **more)
        with mlflow.start_run(nested=True):
            _log_facts(self, X if isinstance(self, Classifier) else None, y, prefix="training_")
            if isinstance(self, Classifier | CircuitEstimator):
                log_model(self)
        return self

    Kept.fit = fit  # type: ignore[attr-defined]


def _log_facts(model: Any, X: Any = None, y: Any = None, prefix: str = "") -> None:
    fitted = fitted_of(model)
    page = None if X is None else model.report(X, y)
    metrics = {} if page is None else asdict(page.numbers.metrics)
    n_rows = int(getattr(fitted.model, "facts", {}).get("n_rows", 0))
    log_training_to_mlflow(
        fitted.learner, fitted.parameters, n_rows, {f"{prefix}{name}": value for name, value in metrics.items()}
    )
    if page is not None:
        import_mlflow().log_text(page.html, "report.html")
        import_mlflow().set_tag("verdict", page.numbers.verdict)


def _load_pyfunc(data_path: str) -> RowAnswers:
    """Load a model for MLflow, which calls this function."""
    return RowAnswers(load(data_path))
