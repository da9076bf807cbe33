"""Names that estimators had in releases up to 0.2.0, which code and pickles use; their place is `fewpass`, a floor above."""

import importlib

NAMES = ("ESKDB", "KDB", "NB", "SKDB", "TAN", "FewPassClassifier", "StructurePosterior", "SumProductNetwork")


def released_estimator(name: str) -> object:
    """Return the estimator of this name; serves as `__getattr__` of modules. Raises AttributeError for other names."""
    if name not in NAMES:
        raise AttributeError(f"fewpass has no estimator {name!r}")
    return getattr(importlib.import_module("fewpass"), name)
