"""Base of all learners' parameters, which are declared once, as the fields of a frozen dataclass."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from learners.errors import InvalidParameter
from learners.models.parameter_synonyms import parameter_hint

MUST_BE = "must be "
OBJECT = "must be a JSON object"
LIST = "must be a list"
WORDS = {
    "missing": "is missing",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": LIST,
    "tuple_type": LIST,
    "dict_type": OBJECT,
    "model_type": OBJECT,
    "model_attributes_type": OBJECT,
    "dataclass_type": OBJECT,
    "mapping_type": OBJECT,
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "has {actual_length} entries but needs at least {min_length}",
    "too_long": "may have at most {max_length} entries",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "union_tag_invalid": "has the unknown {discriminator} {tag!r}; use one of {expected_tags}",
    "union_tag_not_found": "lacks the field {discriminator}",
}  # of pydantic's findings by their type
P = TypeVar("P", bound="Parameters")


@dataclass(frozen=True)
class Parameters:
    """Base of a learner's parameters; a subclass adds fields with defaults and validates them on creation."""

    moved: ClassVar[
        Mapping[str, str]
    ] = {}  # parameters and values, as "name" or "name=value", that another learner has now

    def check_whole_numbers(self, **bounds: tuple[int, int]) -> None:
        """Refuse fields that are not integers from the first to the second bound, or None where that is the default.

        Raises InvalidParameter.
        """
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if value is None and getattr(type(self), name) is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidParameter(name, value, f"a whole number from {low:,} to {high:,}")


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def parse_parameters_dataclass(cls: type[P], of: str, given: Mapping[str, object]) -> P:
    """Parse parameters by name to a learner's dataclass.

    `of`: owner of the parameters, for messages. `given`: a single name is accepted where several are expected.
    Raises InvalidParameter naming the parameter and the allowed values.
    """
    known = [field.name for field in dataclasses.fields(cls)]
    for name, value in given.items():
        if reason := cls.moved.get(f"{name}={value}", cls.moved.get(name)):
            raise InvalidParameter(name, value, because=reason)
        if name not in known:
            hint = parameter_hint(name, known)
            raise InvalidParameter(
                name, value, because=f"{hint}{hint and '; '}{of} has the parameters {', '.join(known)}"
            )
    of_names = {field.name for field in dataclasses.fields(cls) if field.type == "tuple[str, ...]"}
    values = {name: (value,) if name in of_names and isinstance(value, str) else value for name, value in given.items()}
    try:
        parsed: P = _adapter(cast("Any", cls)).validate_python(values)  # mypy takes no class for hashable
        return parsed
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InvalidParameter):
            raise cause from None
        field = str(first["loc"][0]) if first["loc"] else known[0]
        words = parameter_error_message(first)
        if words.startswith(MUST_BE):
            raise InvalidParameter(field, given.get(field), words.removeprefix(MUST_BE)) from None
        of_it = "it " if first["type"] in WORDS else ""
        raise InvalidParameter(field, given.get(field), because=of_it + words) from None


def parameter_error_message(finding: Mapping[str, Any]) -> str:
    """Describe an invalid value, as reported by `ValidationError.errors()`, in our wording."""
    context = {name: value for name, value in finding.get("ctx", {}).items() if name != "error"}
    return WORDS.get(finding["type"], str(finding["msg"]).removesuffix(".")).format_map(context)


@dataclass(frozen=True)
class ParameterField:
    """One parameter for display in a form."""

    name: str
    default: object  # what it is unless given; None where the learner chooses
    # The words and truth values that are allowed; of "number or auto", the words beside numbers.
    choices: tuple[object, ...]
    number: type | None  # int or float, where numbers are allowed
    # "single", "list", "groups" or "pairs": one value, a list of texts, a list of lists, or texts with a number each.
    shape: Literal["single", "list", "groups", "pairs"]
    words: str  # what it means; the first sentence says the most

    @property
    def sentence(self) -> str:
        """First sentence of the description."""
        return re.split(r"(?<=\.)\s", self.words, maxsplit=1)[0]


def parameter_fields(cls: type[Parameters]) -> list[ParameterField]:
    """Return a learner's parameters in documentation order, its own before inherited ones.

    `cls`: a frozen dataclass.
    """
    types = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    shown = []
    for head, text in parameter_texts(cls).items():
        for name in _names(head):
            kinds = list(_alternatives(types[name]))
            choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
            choices += [True, False] if bool in kinds else []
            # A plain text has its choices in the documentation alone: estimator : "hdp-map", "hdp", "m" or None
            choices += re.findall(r'"([^"]+)"', head.partition(" : ")[2]) if str in kinds else []
            number = next((kind for kind in (float, int) if kind in kinds), None)
            words = " ".join(text.split())
            shown.append(
                ParameterField(name, _default(fields[name]), tuple(choices), number, _shape(types[name]), words)
            )
    return shown


def _alternatives(kind: Any) -> Iterator[Any]:
    """Yield the types in a union, except None."""
    if get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            yield from _alternatives(each)
    elif kind is not NoneType:
        yield kind


def _shape(kind: Any) -> Literal["single", "list", "groups", "pairs"]:
    if get_origin(kind) is tuple:
        return "groups" if get_origin(get_args(kind)[0]) is tuple else "list"
    return "pairs" if get_origin(kind) is Mapping else "single"


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def parameter_texts(cls: type) -> dict[str, str]:
    """Return the description of each parameter from the docstrings of a class and its bases.

    Returns dict: the head of an entry, such as "k : int", to its description; inherited entries come last.
    """
    texts: dict[str, str] = {}
    named: set[str] = set()
    for base in cls.__mro__:
        entries = _entries(inspect.cleandoc(base.__dict__.get("__doc__") or ""))
        new = {head: text for head, text in entries.items() if not named.intersection(_names(head))}
        texts |= new
        named |= {name for head in new for name in _names(head)}
    return texts


def _names(head: str) -> list[str]:
    """Return the parameters that the head of an entry names."""
    return [name.strip() for name in head.partition(" : ")[0].split(",")]


def _entries(docstring: str) -> dict[str, str]:
    """Return the entries of the "Parameters" section of a numpydoc docstring."""
    section = docstring.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    entries: dict[str, str] = {}
    head = ""
    for line in section.splitlines():
        if line.startswith(" "):
            entries[head] += line + "\n"
        else:
            head = line
            entries[head] = ""
    return entries
