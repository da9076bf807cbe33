"""What the parameters of all learners have in common: they are stated once, as the fields of a frozen dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from learners.errors import InvalidParameter

P = TypeVar("P", bound="Parameters")


@dataclass(frozen=True)
class Parameters:
    """Base of the parameters of a learner; a subclass adds fields with defaults and checks them when it is made."""


def parse(cls: type[P], of: str, given: Mapping[str, object]) -> P:
    """Parameters by name, as a learner's dataclass.

    Parameters
    ----------
    cls : type
    of : str
        Whose parameters they are, for messages.
    given : mapping
        Where names are taken, one by itself will do.

    Raises
    ------
    InvalidParameter
        Naming the parameter and what is allowed.
    """
    known = [field.name for field in dataclasses.fields(cls)]
    for name in given:
        if name not in known:
            raise InvalidParameter(name, given[name], f"{of} has the parameters {', '.join(known)}")
    of_names = {field.name for field in dataclasses.fields(cls) if field.type == "tuple[str, ...]"}
    told = {name: (value,) if name in of_names and isinstance(value, str) else value for name, value in given.items()}
    try:
        return TypeAdapter(cls).validate_python(told)
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InvalidParameter):
            raise cause from None
        field = str(first["loc"][0]) if first["loc"] else known[0]
        raise InvalidParameter(field, given.get(field), first["msg"]) from None


def described(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each parameter.

    Returns
    -------
    dict
        The head of an entry, such as "k : int", to its description; the entries of bases come last.
    """
    found: dict[str, str] = {}
    named: set[str] = set()
    for base in cls.__mro__:
        entries = _entries(inspect.cleandoc(base.__dict__.get("__doc__") or ""))
        new = {head: text for head, text in entries.items() if not named.intersection(_names(head))}
        found |= new
        named |= {name for head in new for name in _names(head)}
    return found


def _names(head: str) -> list[str]:
    """The parameters that the head of an entry names."""
    return [name.strip() for name in head.partition(" : ")[0].split(",")]


def _entries(docstring: str) -> dict[str, str]:
    """The entries of the section "Parameters" of a numpydoc docstring."""
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
