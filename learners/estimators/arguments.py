"""Arguments of public methods, looked at by their annotations before anything is done."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_args

from learners.errors import InvalidParameter
from learners.models.estimation import Average
from learners.models.query import How
from learners.schema import Schema

P = ParamSpec("P")
R = TypeVar("R")


class Kind(NamedTuple):
    """What an argument of an annotation must be, and how that is asked for."""

    types: type | tuple[type, ...]
    wish: str


TEXT, PATH = Kind(str, "give text"), Kind((str, os.PathLike), "give a path")
KINDS = {
    "int": Kind(Integral, "give a whole number"),
    "float": Kind(Real, "give a number"),
    "str": TEXT,
    "DialectName": TEXT,
    "str | Path": PATH,
    "str | Sequence[str]": Kind((str, Collection), "give a name, or a list of names"),
    "Mapping": Kind(Mapping, "give a mapping, such as {'name': value}"),
    "Average": Kind(Average, "give an Average, or nothing"),
    "Schema": Kind(Schema, "give a Schema, such as infer_schema tells it"),
    "How": Kind(str, f"give one of {', '.join(map(repr, get_args(How)))}"),
}


def check_argument(name: str, value: object, annotation: str) -> None:
    """Refuse a value that is not what an annotation says; annotations that `KINDS` does not have say nothing.

    Raises InvalidParameter.
    """
    plain = annotation.removesuffix(" | None")
    if value is None and plain != annotation:
        return
    kind = KINDS.get(plain.partition("[")[0] if plain.startswith("Mapping[") else plain)
    if kind is None:
        return
    is_one = isinstance(value, kind.types) and not (isinstance(value, bool) and kind.types in (Integral, Real))
    if not is_one or (plain == "How" and value not in get_args(How)):
        raise InvalidParameter(name, value, kind.wish)


def with_checks(method: Callable[P, R]) -> Callable[P, R]:
    """A function that looks at its arguments first."""
    signature = inspect.signature(method)

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check_argument(name, value, str(signature.parameters[name].annotation))
        return method(*args, **kwargs)

    return call


def check_common(estimator: Any) -> None:
    """Look at what every estimator takes besides the parameters of its learner. Raises InvalidParameter."""
    for name, annotation in {
        "target": "str | None",
        "schema": "Schema | None",
        "columns": "Mapping | None",
        "threads": "int | None",
    }.items():
        check_argument(name, getattr(estimator, name, None), annotation)
    if (estimator.threads or 1) < 1:
        raise InvalidParameter("threads", estimator.threads, "one or more, or None for one per core")
