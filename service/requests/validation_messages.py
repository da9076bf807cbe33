"""Validation errors of pydantic in plain words: the value given, and the values allowed."""

import inspect
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import get_args

from pydantic import BaseModel

from learners.models import query
from learners.models.parameters import WORDS, parameter_error_message
from service.requests import requests
from service.requests.json_values import JSONMapping

QUERIES: dict[object, type] = {shape.kind: shape for shape in get_args(query.AnyQuery)}
JOBS: dict[object, type] = {shape.model_fields["kind"].default: shape for shape in get_args(requests.AnyRequest)}
JOBS["promotion"] = requests.PromotionRule
EVIDENCE = 'text, a number, true, false or null, a list of these, {"low": …, "high": …} or {"none_of": […]}'
BRANCH = re.compile(r"(function-[a-z]+|literal|nullable)\[")  # what pydantic calls the types that a value may have
SCALARS = {"str", "int", "float", "bool"}
MOST_SHOWN = 80
OF_THE_WHOLE = {"missing", "union_tag_invalid", "union_tag_not_found"}  # their input is all that stands around


def validation_message(finding: JSONMapping, root: object = None) -> str:
    """Describe one finding of `ValidationError.errors()`; for our own checks, in the words of their exception.

    `root` is the shape that was looked for, so that its members can be named.
    """
    context, kind = finding.get("ctx", {}), finding["type"]
    if isinstance(context.get("error"), Exception):
        return str(context["error"]).removesuffix(".")
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        return unknown_member_message(str(finding["loc"][-1]), request_member_names(finding["loc"], root))
    words = parameter_error_message(finding)
    if kind not in WORDS:
        return words
    shown = "" if kind in OF_THE_WHOLE else repr(finding.get("input"))
    is_shown = 0 < len(shown) <= MOST_SHOWN
    return f"{shown} {words}" if is_shown else words


def unknown_member_message(name: str, known: Sequence[str]) -> str:
    """Describe an unknown member: the known ones, and the most similar of them."""
    if not known:
        return "is not known"
    near = get_close_matches(name, known, 1)
    verb = "are" if len(known) > 1 else "is only"
    return "is not known" + (f" (similar: {near[0]})" if near else "") + f"; there {verb} {', '.join(known)}"


def request_member_names(place: Sequence[object], root: object = None) -> list[str]:
    """Return the members of the shape that contains a place; empty if it is unknown."""
    shapes = JOBS | QUERIES if "queries" in place else QUERIES | JOBS  # some kinds have the same name
    around = next((shapes[part] for part in place[-2:-1] if part in shapes), None)
    if around is None and all(part == "body" for part in place[:-1]):
        around = root if inspect.isclass(root) else None
    if around is None:
        return []
    if issubclass(around, BaseModel):
        return list(around.model_fields)
    return [name for name in inspect.signature(around).parameters if name != "kind"]


def validation_messages_by_place(
    findings: Sequence[JSONMapping], root: object = None
) -> list[tuple[tuple[object, ...], str]]:
    """Return all findings as (place, words); the branches of a union are merged."""
    texts: dict[tuple[object, ...], str] = {}
    for finding in findings:
        place = tuple(part for part in finding["loc"] if not BRANCH.match(str(part)))
        column = _evidence_in(place)
        if column and finding["type"] == "finite_number":
            texts[column] = validation_message(finding, root)
        elif column:
            whole = f"{repr(finding.get('input'))[:MOST_SHOWN]} " if place[len(column) :] == ("str",) else ""
            texts.setdefault(column, f"{whole}must be {EVIDENCE}")
        elif place and place[-1] in SCALARS and finding["type"].endswith(("_type", "_parsing")):
            texts[place[:-1]] = f"{repr(finding.get('input'))[:MOST_SHOWN]} must be text, a number, true, false or null"
        else:
            words = validation_message(finding, root)
            texts[place] = f"{texts[place]}, {words}" if place in texts else words
    return list(texts.items())


def _evidence_in(place: tuple[object, ...]) -> tuple[object, ...]:
    """Return the place of the evidence column that contains a place, empty if none: evidence has many types, each a
    branch.
    """
    at = place.index("evidence") + 2 if "evidence" in place else len(place)
    return place[:at] if len(place) > at else ()
