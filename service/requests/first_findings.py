"""Validation reports only the first findings of a request: reporting each of thousands would block a server for
minutes.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from service.requests.json_values import MOST_NESTED, is_nested_deeper

AT_ONCE = 100  # members of a dict
LISTS = frozenset({"list", "tuple", "set", "frozenset"})
NO_SCHEMAS = frozenset({"metadata", "default"})


class FirstFindings:
    """Annotation of a shape: validation stops at the first wrong entry of a list, and soon after the first wrong member
    of a dict.

    Pydantic reports every invalid entry, branch by branch of a union: 36 s and 3 GB for 240,000 empty lists that were
    to be values.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _stop_early(schema, handler, set())
        return schema


def _stop_early(node: Any, handler: GetCoreSchemaHandler, seen: set[int]) -> None:
    """Change a schema and everything it refers to in place, so that validation stops early."""
    if isinstance(node, dict):
        if id(node) in seen:
            return
        seen.add(id(node))
        if _is_in_pieces(node):  # a schema that a class keeps is met again for each use of the class
            return
        kind = node.get("type")  # among the fields of a shape one may be called so
        if kind == "definition-ref":
            _stop_early(handler.resolve_ref_schema(node), handler, seen)
            return
        if isinstance(kind, str) and kind in LISTS:
            node["fail_fast"] = True
        for name, member in node.items():
            if name not in NO_SCHEMAS:
                _stop_early(member, handler, seen)
        if kind == "dict":
            inner = dict(node)
            node.clear()
            node |= core_schema.no_info_wrap_validator_function(_in_pieces, inner)
    elif isinstance(node, list | tuple):
        for member in node:
            _stop_early(member, handler, seen)


def _is_in_pieces(node: dict[str, Any]) -> bool:
    return node.get("type") == "function-wrap" and node["function"]["function"] is _in_pieces


def _in_pieces(value: Any, check: core_schema.ValidatorFunctionWrapHandler) -> Any:
    if not isinstance(value, dict) or len(value) <= AT_ONCE:
        return check(value)
    members = list(value.items())
    values: dict[Any, Any] = {}
    for first in range(0, len(members), AT_ONCE):
        values |= check(dict(members[first : first + AT_ONCE]))
    return values


class Body(BaseModel):
    """Base of request bodies, with nesting limited to the depth that answers can show."""

    model_config = ConfigDict(defer_build=True)  # a command validates one of forty shapes, and building one takes 3 ms

    @model_validator(mode="before")
    @classmethod
    def _is_flat(cls, members: Any) -> Any:
        if is_nested_deeper(members):
            raise ValueError(f"is nested more than {MOST_NESTED} deep")
        return members

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the shape with `FirstFindings` applied."""
        return FirstFindings().__get_pydantic_core_schema__(source, handler)


# What is left out of a stored request, so that requests of earlier releases read as before.


def is_missing(value: object) -> bool:
    """Return whether the value was omitted (None)."""
    return value is None


def is_auto(value: object) -> bool:
    """Return whether the choice is left to the server ("auto")."""
    return value == "auto"


def is_empty(value: object) -> bool:
    """Return whether the value is empty."""
    return not value


def is_false(value: object) -> bool:
    """Return whether the value is False."""
    return value is False
