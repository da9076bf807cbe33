"""Ensembles as scikit-learn classifiers; the default learner is one."""

from __future__ import annotations

from learners.estimators.asking import Querying
from learners.estimators.classifier import Classifier


class FewPassClassifier(Querying, Classifier):
    """The default learner: networks pooled and corrected by boosted trees, as much of it as a budget allows.

    `model_.facts["choice"]` says in words what was learned and why.
    """

    _learner = "auto"


class ESKDB(Querying, Classifier):
    """An ensemble of selective networks with random cut points and discriminative weights: two passes after the schema."""

    _learner = "eskdb"
