"""Every learner by its name, with its parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from learners.baselines import recipes as baselines
from learners.circuits import recipes as circuits
from learners.classifiers import recipes as classifiers
from learners.errors import InvalidParameter
from learners.passes.learner import Learner
from learners.schema import Kept, Schema


@dataclass(frozen=True)
class Recipe:
    """How to make a learner.

    Parameters
    ----------
    title : str
        One line for people.
    parameters : type
        A frozen dataclass.
    passes : callable
        `passes(target, parameters, schema, overrides)` gives the generator.
    n_passes : int or None
        Passes over the data after the schema, where that is known beforehand.
    keeps_schema : bool
        Whether the next training may keep its attributes and cut points.
    needs_target : bool
        Whether there must be a class column.
    """

    title: str
    parameters: type[Any]
    passes: Callable[..., Any]
    n_passes: int | None
    keeps_schema: bool = True
    needs_target: bool = True


LEARNERS: dict[str, Recipe] = {
    "nb": Recipe("naive Bayes", classifiers.NetworkParameters, classifiers.naive_bayes, 1),
    "tan": Recipe("tree-augmented naive Bayes", classifiers.NetworkParameters, classifiers.tan, 2),
    "kdb": Recipe("k-dependence Bayes", classifiers.KDBParameters, classifiers.kdb, 2),
    "skdb": Recipe("selective k-dependence Bayes", classifiers.SKDBParameters, classifiers.skdb, 3),
    "xgboost": Recipe(
        "XGBoost, gradient boosted trees", baselines.XGBoostParameters, baselines.xgboost, 1, keeps_schema=False
    ),
    "spn": Recipe("sum-product network", circuits.CircuitParameters, circuits.spn, None, needs_target=False),
}


def keeps_schema(name: str) -> bool:
    """Whether a learner's schema can be kept for the next training: those of XGBoost are bins, not cut points."""
    return recipe(name).keeps_schema


def recipe(name: str) -> Recipe:
    """The recipe of a learner.

    Raises
    ------
    InvalidParameter
        If there is none of that name.
    """
    if name not in LEARNERS:
        raise InvalidParameter("learner", name, f"use one of {', '.join(LEARNERS)}")
    return LEARNERS[name]


def parse_parameters(name: str, parameters: Mapping[str, Any]) -> Any:
    """The parameters of a learner as its frozen dataclass.

    Raises
    ------
    InvalidParameter
        Naming the parameter and what is allowed.
    """
    cls = recipe(name).parameters
    known = [field.name for field in dataclasses.fields(cls)]
    for key in parameters:
        if key not in known:
            raise InvalidParameter(key, parameters[key], f"learner {name!r} has the parameters {', '.join(known)}")
    try:
        return TypeAdapter(cls).validate_python(dict(parameters))
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InvalidParameter):
            raise cause from None
        field = str(first["loc"][0]) if first["loc"] else known[0]
        raise InvalidParameter(field, parameters.get(field), first["msg"]) from None


def learner(
    name: str,
    parameters: Mapping[str, Any],
    target: str | None,
    schema: Schema | Kept | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Learner:
    """A learner ready for `drive`.

    Parameters
    ----------
    name : str
        A key of `LEARNERS`.
    parameters : mapping
        Its parameters by name.
    target : str or None
        The class column; without one only for learners that need none.
    schema : Schema or Kept, optional
        A schema skips the schema pass; one that is `Kept` lets it find the domains only.
    overrides : mapping, optional
        Column name to what the user says of it (`ColumnOverride.of`).

    Raises
    ------
    InvalidParameter
    """
    made = recipe(name)
    if target is None and made.needs_target:
        raise InvalidParameter("target", None, f"learner {name!r} predicts a class: name its column")
    passes = made.passes(target, parse_parameters(name, parameters), schema, overrides)
    n_passes = None if made.n_passes is None else made.n_passes + (0 if isinstance(schema, Schema) else 1)
    return Learner(name, passes, n_passes)
