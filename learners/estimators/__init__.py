"""The learners as scikit-learn estimators: what all have in common. `fewpass.estimators` has the classes themselves."""
