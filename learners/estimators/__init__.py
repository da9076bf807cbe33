"""The learners as scikit-learn estimators: what all have in common. `fewpass.estimators` has the classes themselves."""

from learners.estimators.released_names import released_estimator as __getattr__

__all__ = ["__getattr__"]
