"""Check arguments of public methods by their annotations, and build constructors from the learners' parameters."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_args

from learners.errors import InvalidParameter
from learners.estimators.columns import issue_column_warning
from learners.models.estimation import Average
from learners.models.parameter_synonyms import parameter_hint
from learners.models.parameters import Parameters, parameter_texts
from learners.models.query import How
from learners.passes.engine import OnProgress
from learners.passes.learner import Learner, Part, drive
from learners.passes.progress_bar import show_progress_bar
from learners.passes.sources.csv.types import unused_csv_options
from learners.passes.sources.source import Source
from learners.schema import Overrides, Schema

P = ParamSpec("P")
R = TypeVar("R")


class Kind(NamedTuple):
    """Types that an annotation accepts, and the wording of the error message."""

    types: type | tuple[type, ...]
    wish: str


TEXT, PATH = Kind(str, "text"), Kind((str, os.PathLike), "a path")
KINDS = {
    "int": Kind(Integral, "a whole number"),
    "float": Kind(Real, "a number"),
    "str": TEXT,
    "DialectName": TEXT,
    "str | Path": PATH,
    "str | Sequence[str]": Kind((str, Collection), "a name, or a list of names"),
    "Mapping": Kind(Mapping, "a mapping, such as {'name': value}"),
    "Average": Kind(Average, "an Average or None"),
    "Schema": Kind(Schema, "a Schema, such as infer_schema returns"),
    "How": Kind(str, f"one of {', '.join(map(repr, get_args(How)))}"),
}


def check_argument(name: str, value: object, annotation: str) -> None:
    """Refuse a value that does not match an annotation; annotations missing from `KINDS` are not checked.

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


def with_argument_checks(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it checks its arguments first."""
    signature = inspect.signature(method)

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check_argument(name, value, str(signature.parameters[name].annotation))
        return method(*args, **kwargs)

    return call


def with_keyword_hints(hints: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap a method so that the TypeError for an unknown keyword says what to write instead.

    `hints`: what to write, by keyword.
    """

    def wrap(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs.keys() <= signature.parameters.keys():
                return method(*args, **kwargs)
            name = next(name for name in kwargs if name not in signature.parameters)
            hint = hints.get(name) or parameter_hint(name, signature.parameters)
            text = f"{method.__name__}() got an unexpected keyword argument {name!r}"
            raise TypeError(f"{type(args[0]).__name__}.{text}{hint and '; '}{hint}")

        return call

    return wrap


def check_common_arguments(estimator: Any) -> None:
    """Check the arguments common to all estimators. Raises InvalidParameter."""
    for name, kind in {"target": "str", "schema": "Schema", "columns": "Mapping", "threads": "int"}.items():
        check_argument(name, getattr(estimator, name, None), f"{kind} | None")
    if estimator.threads is not None and estimator.threads < 1:
        raise InvalidParameter("threads", estimator.threads, "one or more, or None for one per core")


@dataclass(frozen=True)
class Common:
    """Parameters common to all estimators.

    Parameters
    ----------
    target : str, optional
        The class column.
    schema : Schema, optional
        Skips the schema pass.
    columns : mapping, optional
        How columns are read: "nominal", "numeric", "drop", or a mapping with kind, order or cuts.
    threads : int, optional
        By default one per core; the model does not depend on it.
    verbose : bool
        Show a progress bar in `fit`, on standard error or in the notebook.
    holdout_by : "auto", "time", "order" or "random"
        Rows that stand in for future data. If a column has dates or timestamps ("auto", or "time", which requires
        one), growing columns, such as a date or a running number, are left out if later rows are predicted better
        without them; "order" takes the rows that come last for later ones; "random" keeps all columns.
    """

    target: str | None = None
    schema: Schema | None = None
    columns: Overrides | None = None
    threads: int | None = None
    verbose: bool = False
    holdout_by: str = "auto"


COMMON = tuple(field.name for field in fields(Common))

# Of every classifier, at the end of its docstring.
EXAMPLE = """Examples
--------
>>> from fewpass import {name}
>>> orders = {{"weather": ["rain", "sun"] * 30, "day": ["Mon", "Tue", "Wed"] * 20, "late": ["yes", "no"] * 30}}
>>> model = {name}(target="late").fit(orders)
>>> model.predict({{"weather": ["rain", "sun"], "day": ["Mon", "Mon"]}}).tolist()
['yes', 'no']
>>> int(model.predict_proba({{"weather": ["rain"]}}).argmax())  # columns may be missing; classes_ has the order
1"""


def set_estimator_constructor(
    cls: type,
    parameters: type[Parameters],
    renamed: Mapping[str, str] | None = None,
    base: type | None = None,
    *,
    positional: Collection[str] = (),
    without: Collection[str] = (),
) -> None:
    """Give an estimator the constructor that scikit-learn requires, and document its parameters.

    The constructor stores keywords as attributes without checks; `fit` checks them, as `clone` and `set_params`
    expect.

    `renamed`: parameters that have another name here, as theirs is that of a method.
    `base`: of classifiers: its docstring has their attributes.
    `positional`: parameters that need no keyword.
    `without`: what this estimator does not have of what all have.
    """
    renamed = renamed or {}
    either, keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature(
        [
            inspect.Parameter("self", either),
            *(
                inspect.Parameter(
                    renamed.get(field.name, field.name),
                    either if field.name in positional else keyword,
                    default=None if field.default is MISSING else field.default,
                    annotation=field.type,
                )
                for field in (*fields(parameters), *fields(Common))
                if field.name not in without
            ),
        ]
    )

    def __init__(self: object, *args: object, **given: object) -> None:
        try:
            call = signature.bind(self, *args, **given)
        except TypeError as error:
            known = [name for name in signature.parameters if name != "self"]
            reasons = [parameters.moved.get(name) or parameter_hint(name, known) for name in given if name not in known]
            raise TypeError(
                f"{type(self).__name__}() {'; '.join([str(error), *dict.fromkeys(filter(None, reasons))])}"
            ) from None
        call.apply_defaults()
        vars(self).update({name: value for name, value in call.arguments.items() if name != "self"})

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = __init__  # type: ignore[misc]
    texts = (parameter_texts(parameters) | parameter_texts(Common)).items()
    entries = "".join(
        f"{_renamed(head, renamed)}\n{text}" for head, text in texts if head.partition(" : ")[0] not in without
    )
    summary, separator, rest = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes\n")
    if base is not None:
        _, separator, rest = inspect.cleandoc(base.__doc__ or "").partition("\n\nAttributes\n")
        rest = f"{rest}\n\n{EXAMPLE.format(name=cls.__name__)}"
    cls.__doc__ = f"{summary}\n\nParameters\n----------\n{entries.rstrip()}{separator}{rest}"


def train_estimator_model(
    estimator: Any,
    learner: Learner,
    rows: Source | Sequence[Part],
    on_progress: OnProgress | None,
    hints: Sequence[str] = (),
) -> Any:
    """Train a model with an estimator's threads and, if verbose, a progress bar.

    Warns of options without effect, and of hints, before learning, which may fail for lack of columns.
    """
    parts = [rows] if isinstance(rows, Source) else [part.source for part in rows]
    for message in [
        *unused_csv_options(estimator.columns, [file.path for part in parts for file in part.files]),
        *hints,
    ]:
        issue_column_warning(message)
    with show_progress_bar(estimator.verbose, on_progress) as report:
        return drive(learner, rows, threads=estimator.threads, on_progress=report)


def _renamed(head: str, renamed: Mapping[str, str]) -> str:
    """Rename the parameters in the head of a docstring entry."""
    names, separator, rest = head.partition(" : ")
    return ", ".join(renamed.get(name, name) for name in names.split(", ")) + separator + rest
