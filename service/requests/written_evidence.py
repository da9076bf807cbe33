"""Command-line syntax: evidence `a=1`, `a=30..40`, `a in {x,y}`, `a != x`, weights `a: x=.8,y=.2`, and `name=value`."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest

# A text is split at the first match. "in" is an operator only before a brace, because column names may contain the word.
OPERATOR = re.compile(r"!=|=|\s+not\s+in\s*(?={)|\s+in\s*(?={)")
QUOTED = r'"(?:[^"\\]|\\.)*"'
MEMBER = re.compile(rf"\s*({QUOTED}|(?!\s*\")[^,]*)\s*(?:,|$)")
WEIGHT = re.compile(rf"\s*({QUOTED}|.+?)\s*=\s*([^,=\s]+)\s*(?:,|$)")
# The ends of a range start like numbers, times or durations; any other text with two dots is a value.
END = r"[-+]?(?:\.?\d|P\w)[\w\s.:+-]*?"
RANGE = re.compile(rf"({END})?\.\.({END})?")


IsValue = Callable[[str, str], bool]


def parse_written_evidence(texts: list[str], is_value: IsValue = lambda name, text: False) -> JSONObject:
    """Parse evidence texts into JSON; InvalidRequest for a malformed text and for a repeated column.

    `is_value(name, text)` says whether the text is a value of that text column. Such a text is kept even if it looks like JSON,
    as `null`, `NaN` and `1.50` do.
    """
    evidence: JSONObject = {}
    for text in texts:
        operator = OPERATOR.search(text)
        if operator is None:
            raise InvalidRequest(
                f"{text!r} is not column=value, column=low..high, column in {{a,b}} or column != value."
            )
        name, value = text[: operator.start()], text[operator.end() :]
        if operator[0] != "=":
            name, value = name.strip(), value.strip()
        _check_new(evidence, name)
        evidence[name] = _known(text, name, operator[0].strip(), value, is_value)
    return evidence


def parse_evidence_weights(texts: list[str]) -> JSONObject:
    """Parse the weights of values by column into JSON.

    Raises InvalidRequest if a text cannot be parsed, a weight is not a number, or a column or value is repeated.
    """
    by_column: JSONObject = {}
    for text in texts:
        quoted = re.match(rf"\s*({QUOTED})\s*:", text)
        name, colon, rest = (
            (parse_scalar_value(quoted[1]), ":", text[quoted.end() :]) if quoted else text.partition(":")
        )
        weights: dict[str, float] = {}
        at = 0
        while colon and (item := WEIGHT.match(rest, at)):
            value, at = str(parse_scalar_value(item[1])) if item[1].startswith('"') else item[1], item.end()
            _check_new(weights, value)
            try:
                weights[value] = float(item[2])
            except ValueError:
                raise InvalidRequest(f"The weight of {value!r} must be a number, not {item[2]!r}.") from None
        if not weights or at < len(rest):
            raise InvalidRequest(f"{text!r} is not column: value=weight,value=weight, as 'x: a=.8,b=.2'.")
        name = name.strip()
        _check_new(by_column, name)
        by_column[name] = weights
    return by_column


def parse_name_value_pairs(texts: list[str]) -> JSONObject:
    """Parse name=value texts into JSON; InvalidRequest for a malformed pair and for a repeated name."""
    values: JSONObject = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidRequest(f"{text!r} is not name=value.")
        _check_new(values, name)
        values[name] = parse_scalar_value(value, name)
    return values


def parse_scalar_value(text: str, name: str = "") -> Any:
    """Parse a value as JSON, else return the text; InvalidRequest for an integer of thousands of digits."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
    except ValueError as error:  # raised for an integer of too many digits
        what = repr(name) if name else f"{text[:20]}…"
        raise InvalidRequest(f"{what} has too many digits: write it with an exponent, as 1e300.") from error


def _known(text: str, name: str, operator: str, value: str, is_value: IsValue) -> Any:
    if operator == "=":
        if is_value(name, value):
            return value
        ends = RANGE.fullmatch(value)
        if ends is None or not (ends[1] or ends[2]):
            return parse_scalar_value(value, name)
        return {side: _number(end) for side, end in zip(("low", "high"), ends.groups(), strict=True) if end}
    if operator == "!=" and not value.startswith("{"):
        return {"none_of": [value if is_value(name, value) else parse_scalar_value(value, name)]}
    if not value.endswith("}"):
        raise InvalidRequest(f"{text!r} has a set that does not end with a brace: write it as {{a,b}}.")
    members = _members(value[1:-1], name, is_value)
    return members if operator == "in" else {"none_of": members}


def _members(text: str, name: str, is_value: IsValue) -> list[Any]:
    members: list[Any] = []
    at = 0
    while at < len(text):
        member = MEMBER.match(text, at)
        if member is None:
            raise InvalidRequest(f"{text!r} is not a list of values: quote values that contain commas.")
        own = member[1].strip()
        members.append(own if is_value(name, own) else parse_scalar_value(own))
        at = member.end()
    return members


def _number(text: str) -> float | str:
    """Parse a number, also without a digit before its point; return other text, such as a time, unchanged."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _check_new(names: JSONObject, name: str) -> None:
    if name in names:
        raise InvalidRequest(f"{name!r} is given twice.")
