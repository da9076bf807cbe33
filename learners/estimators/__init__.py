"""The learners as scikit-learn estimators."""

from learners.estimators.circuits import SumProductNetwork
from learners.estimators.ensembles import ESKDB, FewPassClassifier
from learners.estimators.networks import KDB, NB, SKDB, TAN
from learners.estimators.structures import StructurePosterior

__all__ = ["ESKDB", "KDB", "NB", "SKDB", "TAN", "FewPassClassifier", "StructurePosterior", "SumProductNetwork"]
