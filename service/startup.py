"""Faster startup and exit of processes: no pandas, and less garbage collection."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

LOADED_OBJECTS = 1_000_000
PR_SET_PDEATHSIG = 1  # of Linux' sys/prctl.h
USUAL_THRESHOLDS = gc.get_threshold()


def relax_gc_for_startup() -> None:
    """Collect garbage rarely during startup: modules create a million objects, none of them garbage."""
    gc.set_threshold(LOADED_OBJECTS)


def restore_gc_after_startup() -> None:
    """Restore the usual garbage collection, with the loaded objects in the oldest generation."""
    _make_old()
    gc.set_threshold(*USUAL_THRESHOLDS)


def start_no_blas_threads() -> None:
    """Limit BLAS to one thread, in this process before numpy is imported and in its children.

    More threads wait busily for work, and sums depend on their number.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _make_old() -> None:
    """Move all objects to the oldest generation, so that the next collection skips them. Objects frozen elsewhere stay
    frozen.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


class _Ending:
    status: int | None = None  # of a process that may end at once


@atexit.register  # before all others, so called after them
def _end_at_once() -> None:
    if _Ending.status is None:
        return
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the process began without
            stream.flush()
    except OSError:  # which Python tells as it ends
        return
    os._exit(_Ending.status)


@contextmanager
def end_without_teardown() -> Iterator[None]:
    """End the process without freeing its objects when `sys.exit` is called in the block, which saves .4 s.

    Threads are awaited and what `atexit` knows is called, as ever; files are closed by who opened them.
    """
    try:
        yield
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _Ending.status = end.code or 0
        raise


class _Hidden(MetaPathFinder):
    """Import finder that hides one package."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == self.name:
            raise ModuleNotFoundError(fullname)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Hide a package from imports within the block, unless it is already loaded."""
    finder = _Hidden(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def skip_pandas_import() -> None:
    """Make pyarrow work without pandas, which it would import at its first array: .3 s and 50 MB.

    Only for a process that is given no frames, as pyarrow then takes a pandas Series for a sequence.
    """
    import pyarrow as pa

    if "pandas" not in sys.modules:
        with _hidden("pandas"):
            pa.array([0])  # pyarrow looks for pandas once


def skip_scipy_linalg_import() -> None:
    """Load numba without scipy.linalg, where it looks for a BLAS: .2 s. Only its convolutions use that, and ours do
    not.
    """
    from learners.kernels.jit import load_numba_registries

    with _hidden("scipy.linalg"):
        load_numba_registries()


class _XGBoostAlone(MetaPathFinder):
    """Import finder for XGBoost that hides scikit-learn from it."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname) if fullname == "xgboost" else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def run_alone(module: ModuleType) -> None:
                with _hidden("sklearn"):
                    run(module)

            loader.exec_module = run_alone
        return spec


def skip_sklearn_in_xgboost() -> None:
    """Make XGBoost load without scikit-learn: .8 s and 70 MB. Only its own estimators need it, which are not used here."""
    sys.meta_path.insert(0, _XGBoostAlone())


def end_with_parent(parent: int) -> None:
    """Make the kernel send SIGTERM to this process when its parent dies for any reason."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was faster
        sys.exit(0)
