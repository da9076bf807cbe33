"""fewpass: probabilistic models from tables larger than memory, in a few passes.

Its names are listed in `__init__.pyi`, and each is imported when it is first used.

>>> from learners import FewPassClassifier
>>> classifier = FewPassClassifier(target="class").fit("train/*.parquet")
>>> classifier.predict_proba("new.parquet")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
