"""Bayesian network classifiers, and ensembles of them, as scikit-learn classifiers."""

from __future__ import annotations

from learners.estimators.classifier import Classifier
from learners.estimators.explaining import Querying


class NB(Querying, Classifier):
    """Naive Bayes: one pass after the schema."""

    _learner = "nb"


class TAN(Querying, Classifier):
    """Tree-augmented naive Bayes (Friedman, Geiger, Goldszmidt 1997): two passes after the schema."""

    _learner = "tan"


class KDB(Querying, Classifier):
    """k-dependence Bayes (Sahami 1996): two passes after the schema."""

    _learner = "kdb"


class SKDB(Querying, Classifier):
    """Selective kDB (Martínez et al. 2016): three passes after the schema."""

    _learner = "skdb"


class FewPassClassifier(Querying, Classifier):
    """The default learner: networks pooled and corrected by boosted trees, as much of it as a budget allows.

    `model_.facts["choice"]` says in words what was learned and why.
    """

    _learner = "auto"


class ESKDB(Querying, Classifier):
    """An ensemble of selective networks with random cut points and discriminative weights: two passes after the schema."""

    _learner = "eskdb"
