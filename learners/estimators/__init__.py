"""The learners as scikit-learn estimators."""

from learners.estimators.circuits import SumProductNetwork
from learners.estimators.classifier import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier
from learners.estimators.structure_posterior import StructurePosterior

__all__ = ["ESKDB", "KDB", "NB", "SKDB", "TAN", "FewPassClassifier", "StructurePosterior", "SumProductNetwork"]
