"""fewpass: probabilistic models from tables larger than memory, in a few passes.

Its names are listed in `__init__.pyi`, and each is imported when it is first used.

>>> from learners import Source, drive, learner
>>> model = drive(learner("kdb", {"k": 2}, "class"), Source.open("train/*.parquet"))
"""

import lazy_loader

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        return _find(name)
    from learners.estimators.released_names import NAMES, released_estimator

    return released_estimator(name) if name in NAMES else _find(name)
