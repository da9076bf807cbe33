"""The face of the product: every verb that REST, the command line and the worker call, on an opened workspace.

Its verbs are listed in `__init__.pyi`, for type checkers and for this module.

>>> with Workspace(Settings()) as workspace:
...     product.train_model_version(workspace, TrainRequest(uris=["sales/*.parquet"], target="bought", model="buyers"))
"""

import ast
from importlib import import_module
from pathlib import Path

# Each is imported when it is first used: a command that lists models should not wait for numba and the job queue.
_HOME = {
    verb.name: str(line.module)
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(line, ast.ImportFrom)
    for verb in line.names
}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'service.product' has no attribute {name!r}")
    verb = globals()[name] = getattr(import_module(_HOME[name]), name)  # from now on it is found without this function
    return verb
