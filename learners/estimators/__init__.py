"""The learners as scikit-learn estimators."""

from learners.estimators.circuits import SumProductNetwork
from learners.estimators.networks import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier
from learners.estimators.structures import StructurePosterior

__all__ = ["ESKDB", "KDB", "NB", "SKDB", "TAN", "FewPassClassifier", "StructurePosterior", "SumProductNetwork"]
