"""Faster startup and exit of processes: fewer imports of libraries, and less garbage collection."""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any, NamedTuple

LOADED_OBJECTS = 1_000_000
# Libraries, each with an optional one that it is loaded without. XGBoost needs scikit-learn for its own estimators only, which
# are not used here: .8 s and 70 MB. Numba needs YAML for a file of settings.
WITHOUT = {"xgboost": "sklearn", "numba": "yaml"}
NUMBA_SETTINGS = ".numba_config.yaml"
# What scipy.optimize names without using it: a third of its time. The last one loads scipy.fft.
UNUSED = frozenset({"numpy.f2py", "numpy.testing", "scipy.spatial", "scipy.linalg._decomp_interpolative"})
PR_SET_PDEATHSIG = 1  # of Linux' sys/prctl.h
USUAL_THRESHOLDS = gc.get_threshold()


def relax_gc_for_startup() -> None:
    """Collect garbage rarely during startup: modules create a million objects, none of them garbage."""
    gc.set_threshold(LOADED_OBJECTS)


def restore_gc_after_startup() -> None:
    """Restore the usual garbage collection, with the loaded objects in the oldest generation."""
    _make_old()
    gc.set_threshold(*USUAL_THRESHOLDS)


@contextmanager
def gc_relaxed() -> Iterator[None]:
    """Collect garbage rarely in a block that loads modules, in a process that is not ours: its thresholds stay."""
    thresholds = gc.get_threshold()
    gc.set_threshold(LOADED_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        _make_old()
        gc.set_threshold(*thresholds)


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
    except OSError:  # Python reports it when it exits
        return
    os._exit(_Ending.status)


@contextmanager
def end_without_teardown() -> Iterator[None]:
    """End the process without freeing its objects when `sys.exit` is called in the block, which saves .4 s.

    Waits for threads and calls the functions registered with `atexit`, as Python does; whoever opened a file closes it.
    """
    try:
        yield
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _Ending.status = end.code or 0
        raise


class _Hidden:
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

    Only for a process that receives no data frames, because pyarrow then treats a pandas Series as a sequence.
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


class _LoadedWithout:
    """Import finder that hides from a library what it is loaded without."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        hidden = WITHOUT.get(fullname)
        if hidden == "yaml" and os.path.exists(NUMBA_SETTINGS):  # noqa: PTH110 (pathlib is not loaded)
            return None
        spec = None if hidden is None else PathFinder.find_spec(fullname)
        if spec is not None and spec.loader is not None and hidden is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def run_without(module: ModuleType) -> None:
                with _hidden(hidden):
                    run(module)

            loader.exec_module = run_without
        return spec


class _Configured(NamedTuple):
    """Import finder for a library that is configured as soon as it is loaded."""

    name: str
    configure: Callable[[Any], None]

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname) if fullname == self.name else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def run_and_configure(module: ModuleType) -> None:
                run(module)
                self.configure(module)

            loader.exec_module = run_and_configure
        return spec


def configure_once_imported(name: str, configure: Callable[[Any], None]) -> None:
    """Configure a library, now or, if nothing has loaded it yet, when something does."""
    if name in sys.modules:
        configure(sys.modules[name])
    elif (finder := _Configured(name, configure)) not in sys.meta_path:
        sys.meta_path.insert(0, finder)


class _LoadedWhenUsed:
    """Import finder for modules that load at the first look at one of their names."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, *_: object) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in UNUSED else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def skip_unused_imports() -> None:
    """Make libraries load without optional ones, and without packages that they only name."""
    sys.meta_path[:0] = [_LoadedWithout(), _LoadedWhenUsed()]


def end_with_parent(parent: int) -> None:
    """Make the kernel send SIGTERM to this process when its parent dies for any reason."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was faster
        sys.exit(0)
