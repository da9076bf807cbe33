from . import mlflow as mlflow
from . import shap as shap
from .client import Client as Client
from .client import ServerError as ServerError
from .estimators import ESKDB as ESKDB
from .estimators import KDB as KDB
from .estimators import NB as NB
from .estimators import SKDB as SKDB
from .estimators import TAN as TAN
from .estimators import CircuitPosterior as CircuitPosterior
from .estimators import FewPassClassifier as FewPassClassifier
from .estimators import StructurePosterior as StructurePosterior
from .estimators import SumProductNetwork as SumProductNetwork
from .estimators import XGBoost as XGBoost
from .learning import compare as compare
from .learning import cross_validate as cross_validate
from .learning import explain as explain
from .learning import learner as learner
from .learning import load_model as load_model
from .learning import read_network as read_network
from .learning import record_classifier as record_classifier
from .learning import write_report as write_report
from .lifecycle import load as load
from .lifecycle import open as open
from .lifecycle import publish as publish
from .questions import Average as Average
from .questions import Conditional as Conditional
from .questions import Edges as Edges
from .questions import Effects as Effects
from .questions import Graph as Graph
from .questions import Graphs as Graphs
from .questions import Impute as Impute
from .questions import Map as Map
from .questions import Marginal as Marginal
from .questions import Moments as Moments
from .questions import NoneOf as NoneOf
from .questions import Paths as Paths
from .questions import Range as Range
from .questions import Sample as Sample
from .questions import Sampling as Sampling
from .questions import Score as Score
from .questions import Surprise as Surprise
from .table_passes import Chunk as Chunk
from .table_passes import ColumnWarning as ColumnWarning
from .table_passes import LearnerError as LearnerError
from .table_passes import Progress as Progress
from .table_passes import Schema as Schema
from .table_passes import Source as Source
from .table_passes import collect as collect
from .table_passes import drive as drive
from .table_passes import encode as encode
from .table_passes import infer_schema as infer_schema

PACKAGES: tuple[str, ...]
__all__: list[str]
__version__: str

class HiddenPackage(ImportError): ...
