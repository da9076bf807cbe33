"""Registry of the learners with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import Any

from learners.classifiers import recipes as classifiers
from learners.classifiers.baselines import recipes as baselines
from learners.classifiers.baselines.boosted import XGBoostParameters
from learners.ensembles import recipes as ensembles
from learners.errors import InvalidParameter, one_of
from learners.models.model import Model
from learners.models.parameters import Parameters, parse_parameters_dataclass
from learners.passes.learner import Learner, Passes
from learners.registry.later_rows import HOLDOUT_BY, passes_for_later_rows, passes_with_kept_choice
from learners.registry.lazy_imports import LazyTable
from learners.schema import Kept, Overrides, Schema
from learners.schema.category_counts import check_class_count
from learners.schema.schema import FEW_CLASSES, MAX_CLASSES


@dataclass(frozen=True)
class Recipe:
    """Definition of a learner."""

    title: str  # one line for people
    parameters: type[Parameters]  # a frozen dataclass
    passes: Callable[..., Passes[Model]]  # `passes(target, parameters, schema, overrides)` gives the generator
    # Passes over the data after the schema: of any parameters, of given ones, or None where nobody knows beforehand.
    n_passes: int | Callable[[Any], int] | None
    keeps_schema: bool = True  # whether the next training may keep its attributes and cut points; bins are none
    needs_target: bool = True  # whether there must be a class column
    takes_target: bool = True  # whether there may be one
    cuts_by: tuple[str, ...] = ()  # the parameters that cut points depend on; learners without any share theirs
    goes_on: bool = False  # whether an update may go on from the model itself, which then cannot forget
    max_classes: int = FEW_CLASSES  # a schema that is given may have so many classes


OF_MEMBERS = ("members", "seed")
DEFAULT = "auto"
_RECIPES: dict[str, Recipe | str] = {
    "auto": Recipe(
        "the default, an ensemble of networks corrected by boosted trees",
        ensembles.AutoParameters,
        ensembles.auto,
        2,
        cuts_by=OF_MEMBERS,
    ),
    "eskdb": Recipe(
        "an ensemble of selective networks", ensembles.ESKDBParameters, ensembles.eskdb, 2, cuts_by=OF_MEMBERS
    ),
    "nb": Recipe("naive Bayes", classifiers.NetworkParameters, classifiers.naive_bayes, 1, max_classes=MAX_CLASSES),
    "tan": Recipe(
        "tree-augmented naive Bayes",
        classifiers.TANParameters,
        classifiers.tan,
        lambda parameters: 1 if parameters.average else 2,
        max_classes=MAX_CLASSES,
    ),
    "kdb": Recipe("k-dependence Bayes", classifiers.KDBParameters, classifiers.kdb, 2, max_classes=MAX_CLASSES),
    "skdb": Recipe("selective k-dependence Bayes", classifiers.SKDBParameters, classifiers.skdb, 3),
    "xgboost": Recipe(
        "XGBoost, gradient boosted trees", XGBoostParameters, baselines.xgboost, None, keeps_schema=False
    ),
    "spn": "learners.registry.circuit_recipes:SPN",
    "gibbs": "learners.registry.circuit_recipes:GIBBS",
    "orders": "learners.registry.structure_recipes:ORDERS",
}
LEARNERS: MutableMapping[str, Recipe] = LazyTable(_RECIPES)


def cut_point_parameters(name: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters that determine a learner's cut points; learners that agree in them can share schemas.

    Raises InvalidParameter.
    """
    values = parse_learner_parameters(name, parameters)
    return {field: getattr(values, field) for field in learner_recipe(name).cuts_by}


def learner_recipe(name: str) -> Recipe:
    """Return the recipe of a learner. Raises InvalidParameter if the name is unknown."""
    if name not in LEARNERS:
        raise InvalidParameter("learner", name, one_of(name, LEARNERS))
    return LEARNERS[name]


def parse_learner_parameters(name: str, parameters: Mapping[str, object]) -> Parameters:
    """Parse the parameters of a learner to its frozen dataclass. Raises InvalidParameter naming the parameter and the
    allowed values.
    """
    return parse_parameters_dataclass(learner_recipe(name).parameters, f"learner {name!r}", parameters)


def current_recipe(name: str, parameters: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Translate a learner and its parameters, as a release up to 0.2.0 recorded them, to what they are called now.

    Sampling was `learning="gibbs"` of the learner spn.
    """
    if name != "spn":
        return name, dict(parameters)
    if parameters.get("learning") == "gibbs":
        known = {own.name for own in fields(LEARNERS["gibbs"].parameters)}
        return "gibbs", {own: value for own, value in parameters.items() if own in known and value is not None}
    return name, {own: value for own, value in parameters.items() if own not in LEARNERS[name].parameters.moved}


def learner(
    name: str,
    parameters: Mapping[str, object],
    target: str | None,
    schema: Schema | Kept | None = None,
    overrides: Overrides | None = None,
    holdout_by: str = "auto",
) -> Learner:
    """Create a learner for `drive`.

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
        Column name to its settings (`ColumnOverride.of`).
    holdout_by : "auto", "time", "order" or "random"
        Rows that stand in for future data when a classifier decides whether to learn growing columns: later ones,
        where a column has times ("auto") or must have ("time"); those that come last; or any, so that all columns
        are.

    Raises
    ------
    InvalidParameter
    """
    entry = learner_recipe(name)
    if target is None and entry.needs_target:
        raise InvalidParameter("target", None, because=f"learner {name!r} predicts a class: name its column")
    if isinstance(schema, Schema) and target is not None:
        check_class_count(target, schema.n_classes, entry.max_classes)
    values = parse_learner_parameters(name, parameters)
    n_passes = entry.n_passes(values) if callable(entry.n_passes) else entry.n_passes
    if n_passes is not None and not isinstance(schema, Schema):
        n_passes += 1
    if holdout_by not in HOLDOUT_BY:
        raise InvalidParameter("holdout_by", holdout_by, f"one of {', '.join(HOLDOUT_BY)}")
    passes = entry.passes(target, values, schema, overrides)
    is_kept = isinstance(schema, Schema) or (isinstance(schema, Kept) and schema.cuts == "kept")
    if entry.needs_target and not is_kept:
        if isinstance(schema, Kept) and schema.cuts == "auto":
            passes = passes_with_kept_choice(passes, schema.schema)
        elif holdout_by != "random" and getattr(values, "passes", None) is None:  # else passes are counted
            passes = passes_for_later_rows(passes, holdout_by)
    return Learner(name, passes, n_passes)
