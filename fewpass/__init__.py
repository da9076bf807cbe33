"""fewpass: probabilistic models from tables larger than memory, in a few passes.

Its names are listed in `__init__.pyi`, and each is imported when it is first used.

>>> import fewpass
>>> classifier = fewpass.FewPassClassifier(target="class").fit("train/*.parquet")
>>> classifier.predict_proba("new.parquet")
"""

import os
import sys
from difflib import get_close_matches
from importlib.util import find_spec

import lazy_loader

# The packages below this one, which every process of it needs under these names.
PACKAGES = ("learners", "service", "storage")


class HiddenPackage(ImportError):
    """Raised when a user's module has the name of a fewpass package and Python finds it first."""

    def __init__(self, package: str, found: str) -> None:
        super().__init__(
            f"{found} hides the package {package!r} of fewpass. Rename it, or start Python from another folder.",
            name=package,
            path=found,
        )


def _check_packages() -> None:
    """Refuse to start if a module of another origin hides one of our packages (HiddenPackage)."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100
    for package in PACKAGES:
        loaded = sys.modules.get(package)
        spec = find_spec(package) if loaded is None else loaded.__spec__
        found = (getattr(loaded, "__file__", None) if spec is None else spec.origin) or package
        if os.path.realpath(found) != os.path.realpath(os.path.join(root, package, "__init__.py")):  # noqa: PTH118
            raise HiddenPackage(package, found)


_check_packages()

_find, _, _names = lazy_loader.attach_stub(__name__, __file__)
_OF_EXTRAS = ("mlflow", "shap")
# `from fewpass import *` leaves `open` what it is, and needs no library of an extra.
__all__ = [name for name in _names if name not in ("open", *_OF_EXTRAS)]
__all__ += ["__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from service.version import VERSION

        return VERSION
    if name not in _names:
        if name[:1].isupper():  # the class of a learner that the stub does not list
            from fewpass.estimators import ESTIMATORS

            for cls in ESTIMATORS.values():
                if cls.__name__ == name:
                    return cls
        raise AttributeError(f"module 'fewpass' has no attribute {name!r}; {_instead_of(name)}")
    from service.startup import gc_relaxed

    with gc_relaxed():  # collections take a fifth of the time
        return _find(name)


def _instead_of(name: str) -> str:
    """Say what to use instead of a name that does not exist."""
    if name in ("fit", "train", "predict"):
        return "train and predict with an estimator: fewpass.FewPassClassifier(target='column').fit(table)"
    near = get_close_matches(name, __dir__())
    return f"similar: {', '.join(near)}" if near else f"it has {', '.join(__dir__())}"


def __dir__() -> list[str]:
    return sorted([*__all__, "open"])
