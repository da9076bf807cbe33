"""Serialization of exceptions between processes."""

import pickle

from pydantic import ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError

from service.requests.problems import InvalidRequest, problem_from_error
from storage.errors import ControlUnavailable


def pack_error(error: Exception) -> tuple[type[Exception], tuple[object, ...], dict[str, object]]:
    """Convert an exception to picklable parts."""
    if isinstance(error, ValidationError):
        return InvalidRequest, (problem_from_error(error).detail,), {"fields": {}}
    # Those of the system hold the name of the file beside their arguments.
    arguments = tuple(error.__reduce__()[1]) if isinstance(error, OSError) else error.args
    parts = (type(error), arguments, vars(error))
    try:
        unpack_error(pickle.loads(pickle.dumps(parts)))
    except Exception:
        if isinstance(error, OperationalError | InterfaceError):
            return ControlUnavailable, (str(error),), {}
        return RuntimeError, (f"{type(error).__name__}: {error}",), {}
    return parts


def unpack_error(packed: tuple[type[Exception], tuple[object, ...], dict[str, object]]) -> Exception:
    """Rebuild the exception packed by `pack_error`."""
    kind, arguments, fields = packed
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(fields)
    return error
