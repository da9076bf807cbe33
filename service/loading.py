"""How a process loads its modules and kernels in less time: without pandas, and with less looking for garbage."""

import gc
import sys
from importlib.abc import MetaPathFinder

LOADED_OBJECTS = 1_000_000
USUAL_THRESHOLDS = gc.get_threshold()


def begin_loading() -> None:
    """Look for garbage rarely: a million objects are made while modules load, and none is garbage.

    Looking takes a fifth of that time.
    """
    gc.set_threshold(LOADED_OBJECTS)


def end_loading() -> None:
    """Look for garbage as usual from now on."""
    gc.set_threshold(*USUAL_THRESHOLDS)


class _NoPandas(MetaPathFinder):
    """Finds everything but pandas."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def spare_pandas() -> None:
    """Let pyarrow convert without pandas, which it would import at its first array: .3 s and 50 MB.

    Only for a process that is given no frames, as pyarrow then takes a pandas Series for a sequence.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])  # pyarrow looks for pandas once
    finally:
        sys.meta_path.remove(finder)
