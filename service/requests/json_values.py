"""Types of JSON objects in requests, answers and job receipts, and numbers written in text."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

JSONObject = dict[str, Any]
JSONMapping = Mapping[str, Any]  # one that is only read
MOST_NESTED = 32  # lists and objects within each other; what is shown stands in a few more
TOO_NESTED = "… (nested too deeply to be shown)"


def is_nested_deeper(value: object, most: int = MOST_NESTED) -> bool:
    """Return whether lists and objects are nested more than `most` levels deep."""
    left = [(value, 1)]
    while left:
        whole, depth = left.pop()
        members = whole.values() if isinstance(whole, Mapping) else whole if isinstance(whole, list | tuple) else ()
        inner = [member for member in members if isinstance(member, Mapping | list | tuple)]
        if inner and depth >= most:
            return True
        left += [(member, depth + 1) for member in inner]
    return False


def cut_nested(value: Any, most: int = MOST_NESTED) -> Any:
    """Return the value with a few words in place of parts nested too deeply for an answer, which earlier releases could
    store.
    """
    return _cut(value, most) if is_nested_deeper(value, most) else value


def _cut(value: Any, most: int) -> Any:
    if not isinstance(value, Mapping | list | tuple):
        return value
    if most == 0:
        return TOO_NESTED
    if isinstance(value, Mapping):
        return {name: _cut(member, most - 1) for name, member in value.items()}
    return [_cut(member, most - 1) for member in value]


ShownObject = Annotated[JSONObject, BeforeValidator(cut_nested)]  # of an answer


def whole_number_or_none(text: str, most: int) -> int | None:
    """Parse decimal digits as a number from 0 to `most`; None for any other text, of any length."""
    digits = text.lstrip("0") or text[:1]
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(most)):
        return None  # Python refuses to convert thousands of digits
    number = int(digits)
    return number if number <= most else None
