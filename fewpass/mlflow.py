"""Models in MLflow: logged with signature and example, served by its tools, and loaded back as the estimators that they were.

>>> import fewpass.mlflow
>>> with mlflow.start_run():
...     fewpass.mlflow.log_model(model, input_example=frame.head(), registered_model_name="income")
>>> fewpass.mlflow.load_model("models:/income/1")
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from fewpass.estimators import fitted_of
from fewpass.lifecycle import load
from learners.errors import LearnerError
from learners.estimators import SumProductNetwork
from learners.estimators.classifier import Classifier
from service.version import VERSION

FILE = "model.fewpass"
EXAMPLE_ROWS = 5
LOG_LIKELIHOOD = "log_likelihood"


class MLflowMissing(LearnerError, ImportError):
    """MLflow is not installed."""

    def __init__(self) -> None:
        super().__init__("Models in MLflow need it, and it is not installed: pip install 'fewpass[mlflow]'.")


class NotOurs(LearnerError, ValueError):
    """A model of MLflow is not one that `log_model` has logged."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} was not logged by fewpass.mlflow.log_model. Load it with mlflow.pyfunc.load_model.")


class NoAnswers(LearnerError, TypeError):
    """An estimator has nothing to say of single rows."""

    def __init__(self, estimator: object) -> None:
        super().__init__(
            f"{type(estimator).__name__} answers queries and no rows, so MLflow could not serve it. Log its file, which `save` writes, "
            "with mlflow.log_artifact."
        )


class RowAnswers:
    """What MLflow's `pyfunc` asks of a model: a frame in, a frame out.

    Parameters
    ----------
    estimator : estimator
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def predict(self, model_input: Any, params: Any = None) -> pd.DataFrame:
        """Of each row `prediction` and `probability_<class>`, as `fewpass predict` writes them; without classes `log_likelihood`."""
        del params
        if self.estimator.model_.schema.target is None:
            return pd.DataFrame({LOG_LIKELIHOOD: self.estimator.score_samples(model_input)})
        probabilities = self.estimator.predict_proba(model_input)
        classes = self.estimator.classes_
        told = {
            f"probability_{name}": probabilities[:, i] for i, name in enumerate(self.estimator.model_.schema.classes)
        }
        return pd.DataFrame({"prediction": classes[probabilities.argmax(axis=1)]} | told)


def log_model(
    model: Any, name: str = "model", *, input_example: Any = None, registered_model_name: str | None = None, **more: Any
) -> Any:
    """Log a fitted estimator to the active run as a `pyfunc` model; what is logged is the file that `save` writes, no pickle.

    Parameters
    ----------
    model : estimator
        Any but posteriors over structures.
    name : str
        Of the model in the run.
    input_example : pandas.DataFrame, optional
        A few rows without classes. They tell the signature, in which every column may be missing, and are logged beside it.
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
    mlflow = _mlflow()
    if not isinstance(model, Classifier | SumProductNetwork):
        fitted_of(model)  # which refuses what is no estimator of ours
        raise NoAnswers(model)
    if input_example is not None:
        input_example = input_example.head(EXAMPLE_ROWS)
        more = {"signature": _signature(model, input_example)} | more
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / FILE)
        return mlflow.pyfunc.log_model(
            name=name,
            loader_module=__name__,
            data_path=str(Path(folder) / FILE),
            input_example=input_example,
            registered_model_name=registered_model_name,
            **({"pip_requirements": [f"fewpass=={VERSION}"]} | more),
        )


def load_model(model_uri: str) -> Any:
    """The estimator that `log_model` has logged, checked as `fewpass.load` checks every file.

    Parameters
    ----------
    model_uri : str
        Such as "models:/income/3", "models:/income@champion" or "runs:/…/model".

    Raises
    ------
    MLflowMissing
    NotOurs
        If something else has logged the model.
    CorruptFile
    """
    mlflow = _mlflow()
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=model_uri))
    flavor = mlflow.models.Model.load(str(folder)).flavors.get("python_function", {})
    if flavor.get("loader_module") != __name__:
        raise NotOurs(model_uri)
    return load(folder / flavor["data"])


def log_fit(model: Any, X: Any = None, y: Any = None, **more: Any) -> Any:
    """Log to the active run what a training is remembered by: parameters, and with rows their metrics and the report; and the model.

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
    mlflow = _mlflow()
    fitted = fitted_of(model)
    mlflow.log_params({"learner": fitted.learner} | {name: str(value) for name, value in fitted.parameters.items()})
    mlflow.log_metric("n_rows", int(getattr(fitted.model, "facts", {}).get("n_rows", 0)))
    if X is not None:
        page = model.report(X, y)
        mlflow.log_metrics({name: float(value) for name, value in asdict(page.numbers.metrics).items()})
        mlflow.log_text(page.html, "report.html")
        mlflow.set_tag("verdict", page.numbers.verdict)
    return log_model(model, **more)


def _signature(model: Any, rows: pd.DataFrame) -> Any:
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types.schema import AnyType, ColSpec, DataType, Schema

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Hint: Inferred schema contains integer")  # which the columns below heed
        found = infer_signature(rows, RowAnswers(model).predict(rows))
    is_number = {attribute.name for attribute in model.model_.schema.attributes if attribute.kind == "numeric"}
    columns = []
    for column in found.inputs.inputs:
        # Of whole numbers with a null pandas makes fractions, which MLflow would refuse.
        is_whole = column.type in (DataType.integer, DataType.long) and column.name in is_number
        columns.append(ColSpec(AnyType() if is_whole else column.type, column.name, required=False))
    return ModelSignature(Schema(columns), found.outputs)


def _load_pyfunc(data_path: str) -> RowAnswers:
    """What MLflow calls to load a model."""
    return RowAnswers(load(data_path))


def _mlflow() -> Any:
    try:
        import mlflow.pyfunc
    except ImportError as error:
        raise MLflowMissing from error
    return mlflow
