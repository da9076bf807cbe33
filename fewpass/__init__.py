"""fewpass: probabilistic models from tables larger than memory, in a few passes.

>>> import fewpass
>>> classifier = fewpass.FewPassClassifier(target="class").fit("train/*.parquet")
>>> classifier.predict_proba("new.parquet")
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fewpass.client import Client as Client
    from fewpass.client import ServerError as ServerError
    from fewpass.estimators import ESKDB as ESKDB
    from fewpass.estimators import KDB as KDB
    from fewpass.estimators import NB as NB
    from fewpass.estimators import SKDB as SKDB
    from fewpass.estimators import TAN as TAN
    from fewpass.estimators import FewPassClassifier as FewPassClassifier
    from fewpass.estimators import StructurePosterior as StructurePosterior
    from fewpass.estimators import SumProductNetwork as SumProductNetwork
    from fewpass.estimators import XGBoost as XGBoost
    from fewpass.lifecycle import load as load
    from fewpass.lifecycle import open as open
    from fewpass.lifecycle import publish as publish
    from learners import Chunk as Chunk
    from learners import ColumnWarning as ColumnWarning
    from learners import LearnerError as LearnerError
    from learners import Progress as Progress
    from learners import Schema as Schema
    from learners import Source as Source
    from learners import collect as collect
    from learners import drive as drive
    from learners import encode as encode
    from learners import explain as explain
    from learners import infer_schema as infer_schema
    from learners import learner as learner
    from learners import load_model as load_model
    from learners import read_network as read_network
    from learners import record_classifier as record_classifier
    from learners.evaluation import compare as compare
    from learners.evaluation import cross_validate as cross_validate
    from learners.evaluation import write_report as write_report
    from learners.models.estimation import Average as Average
    from learners.models.estimation import Sampling as Sampling
    from learners.models.evidence import NoneOf as NoneOf
    from learners.models.evidence import Range as Range
    from learners.models.query import Conditional as Conditional
    from learners.models.query import Edges as Edges
    from learners.models.query import Effects as Effects
    from learners.models.query import Graph as Graph
    from learners.models.query import Graphs as Graphs
    from learners.models.query import Impute as Impute
    from learners.models.query import Map as Map
    from learners.models.query import Marginal as Marginal
    from learners.models.query import Moments as Moments
    from learners.models.query import Paths as Paths
    from learners.models.query import Sample as Sample
    from learners.models.query import Score as Score
    from learners.models.query import Surprise as Surprise

    __version__: str

# The packages below this one, which every process of it needs under these names.
PACKAGES = ("learners", "service", "storage")

# Imported when first used: `import fewpass` itself takes a few milliseconds.
_NAMES = {
    "learners": "Chunk ColumnWarning LearnerError Progress Schema Source collect drive encode explain infer_schema "
    "learner load_model read_network record_classifier",
    "fewpass.client": "Client ServerError",
    "fewpass.estimators": "ESKDB KDB NB SKDB TAN FewPassClassifier StructurePosterior SumProductNetwork XGBoost",
    "fewpass.lifecycle": "load open publish",
    "learners.evaluation": "compare cross_validate write_report",
    "learners.models.estimation": "Average Sampling",
    "learners.models.evidence": "NoneOf Range",
    "learners.models.query": "Conditional Edges Effects Graph Graphs Impute Map Marginal Moments Paths Sample Score Surprise",
    "service.version": "__version__",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}

# `from fewpass import *` leaves `open` what it is.
__all__ = [name for name in _HOME if name != "open"]


class HiddenPackage(ImportError):
    """A module of the user has the name of one of our packages, and Python finds it first."""

    def __init__(self, package: str, found: str) -> None:
        super().__init__(
            f"{found} hides the package {package!r} of fewpass. Rename it, or start Python from another folder.",
            name=package,
            path=found,
        )


def _check_packages() -> None:
    """Refuse to begin where one of our packages would be somebody else's module of that name."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100
    for package in PACKAGES:
        loaded = sys.modules.get(package)
        spec = find_spec(package) if loaded is None else loaded.__spec__
        found = (getattr(loaded, "__file__", None) if spec is None else spec.origin) or package
        if os.path.realpath(found) != os.path.realpath(os.path.join(root, package, "__init__.py")):  # noqa: PTH118
            raise HiddenPackage(package, found)


_check_packages()


def __getattr__(name: str) -> object:
    if name in ("mlflow", "shap"):
        return import_module(f"fewpass.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fewpass' has no attribute {name!r}; it has {', '.join(_HOME)}")
    return getattr(import_module(_HOME[name]), "VERSION" if name == "__version__" else name)


def __dir__() -> list[str]:
    return sorted(_HOME)
