"""The Bayesian network classifiers as scikit-learn classifiers."""

from __future__ import annotations

from learners.estimators.classifier import Classifier


class NB(Classifier):
    """Naive Bayes: one pass after the schema."""

    _learner = "nb"


class TAN(Classifier):
    """Tree-augmented naive Bayes (Friedman, Geiger, Goldszmidt 1997): two passes after the schema."""

    _learner = "tan"


class KDB(Classifier):
    """k-dependence Bayes (Sahami 1996): two passes after the schema."""

    _learner = "kdb"


class SKDB(Classifier):
    """Selective kDB (Martínez et al. 2016): three passes after the schema."""

    _learner = "skdb"
