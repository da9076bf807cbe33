"""fewpass: probabilistic models from tables larger than memory, in a few passes.

>>> from learners import FewPassClassifier
>>> classifier = FewPassClassifier(target="class").fit("train/*.parquet")
>>> classifier.predict_proba("new.parquet")
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from learners.errors import ColumnWarning as ColumnWarning
    from learners.errors import LearnerError as LearnerError
    from learners.estimators import ESKDB as ESKDB
    from learners.estimators import KDB as KDB
    from learners.estimators import NB as NB
    from learners.estimators import SKDB as SKDB
    from learners.estimators import TAN as TAN
    from learners.estimators import FewPassClassifier as FewPassClassifier
    from learners.estimators import StructurePosterior as StructurePosterior
    from learners.estimators import SumProductNetwork as SumProductNetwork
    from learners.models.explanation import explain as explain
    from learners.orders.formats.network_files import read_network as read_network
    from learners.passes.engine import Progress as Progress
    from learners.passes.engine import collect as collect
    from learners.passes.learner import drive as drive
    from learners.passes.learner import infer_schema as infer_schema
    from learners.passes.sources.source import Source as Source
    from learners.registry.discrete_networks import network_model as network_model
    from learners.registry.model_kinds import load_model as load_model
    from learners.registry.recipes import learner as learner
    from learners.schema import Chunk as Chunk
    from learners.schema import Schema as Schema
    from learners.schema.encoding.encode import encode as encode
    from learners.schema.encoding.json_records import record_classifier as record_classifier

# Imported when first used: a command that only asks a server should not wait for numba and scikit-learn.
_NAMES = {
    "learners.errors": "ColumnWarning LearnerError",
    "learners.estimators": "ESKDB FewPassClassifier KDB NB SKDB StructurePosterior SumProductNetwork TAN",
    "learners.models.explanation": "explain",
    "learners.orders.formats.network_files": "read_network",
    "learners.passes.engine": "Progress collect",
    "learners.passes.learner": "drive infer_schema",
    "learners.passes.sources.source": "Source",
    "learners.registry.discrete_networks": "network_model",
    "learners.registry.model_kinds": "load_model",
    "learners.registry.recipes": "learner",
    "learners.schema": "Chunk Schema",
    "learners.schema.encoding.encode": "encode",
    "learners.schema.encoding.json_records": "record_classifier",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'learners' has no attribute {name!r}; it has {', '.join(_HOME)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
