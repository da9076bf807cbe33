"""How a process loads its modules and kernels in less time: without pandas, and with less looking for garbage."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

LOADED_OBJECTS = 1_000_000
USUAL_THRESHOLDS = gc.get_threshold()


def relax_gc_for_startup() -> None:
    """Look for garbage rarely: modules make a million objects while they load, none is garbage, and looking takes long."""
    gc.set_threshold(LOADED_OBJECTS)


def restore_gc_after_startup() -> None:
    """Look for garbage as usual from now on, and not at once among what was loaded: it is old."""
    _make_old()
    gc.set_threshold(*USUAL_THRESHOLDS)


def _make_old() -> None:
    """Make all objects old, as the next collection would look at every young one. What others have frozen stays so."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


class _Hidden(MetaPathFinder):
    """Finds everything but one package."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == self.name:
            raise ModuleNotFoundError(fullname)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Nobody finds a package, unless it is loaded already."""
    finder = _Hidden(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def skip_pandas_import() -> None:
    """Let pyarrow convert without pandas, which it would import at its first array: .3 s and 50 MB.

    Only for a process that is given no frames, as pyarrow then takes a pandas Series for a sequence.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        with _hidden("pandas"):
            pa.array([0])  # pyarrow looks for pandas once


def skip_scipy_linalg_import() -> None:
    """Let numba load without scipy.linalg, where it looks for a BLAS: .2 s. Only its convolutions would use that, ours are none."""
    from learners.kernels.jit import load_numba_registries

    with _hidden("scipy.linalg"):
        load_numba_registries()
