"""Learners, comparisons and models without a workspace."""

from learners.evaluation.comparison import compare
from learners.evaluation.crossvalidation import cross_validate
from learners.evaluation.report import write_report
from learners.models.explanation import explain
from learners.models.record_classifier import record_classifier
from learners.orders.formats.network_files import read_network
from learners.registry.model_kinds import load_model
from learners.registry.recipes import learner

__all__ = [
    "compare",
    "cross_validate",
    "explain",
    "learner",
    "load_model",
    "read_network",
    "record_classifier",
    "write_report",
]
