"""Constructors of estimators, from the parameters of their learners: each is stated once, in the learner's dataclass."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields

from learners.parameters import Parameters, described
from learners.schema import Overrides, Schema


@dataclass(frozen=True)
class Common:
    """What every estimator has besides.

    Parameters
    ----------
    target : str, optional
        The class column.
    schema : Schema, optional
        Skips the schema pass.
    columns : mapping, optional
        What to make of single columns: "nominal", "numeric", "drop", or a mapping with kind, order or cuts.
    threads : int, optional
        By default one per core; the model does not depend on it.
    """

    target: str | None = None
    schema: Schema | None = None
    columns: Overrides | None = None
    threads: int | None = None


COMMON = tuple(field.name for field in fields(Common))


def construct_from(cls: type, parameters: type[Parameters]) -> None:
    """Give an estimator the constructor that scikit-learn asks for, and say in its docstring what it takes.

    The constructor takes keywords only, keeps them as attributes and checks nothing: `fit` does, as `clone` and
    `set_params` expect.
    """
    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
                )
                for field in (*fields(parameters), *fields(Common))
            ),
        ]
    )

    def __init__(self: object, *args: object, **given: object) -> None:
        try:
            taken = signature.bind(self, *args, **given)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}() {error}") from None
        taken.apply_defaults()
        vars(self).update({name: value for name, value in taken.arguments.items() if name != "self"})

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = __init__  # type: ignore[misc]
    entries = "".join(f"{head}\n{text}" for head, text in (described(parameters) | described(Common)).items())
    cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nParameters\n----------\n{entries}"
