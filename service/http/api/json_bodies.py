"""JSON bodies: limits on size and depth, and error messages that name the place."""

import codecs
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from service.requests.json_values import MOST_NESTED, is_nested_deeper
from service.requests.problems import BodyTooLarge, InvalidRequest, MalformedBody

# As Python has them: a dict, each of its members with its name, a list, each of its elements, and a text beyond its characters.
RECORD_BYTES, MEMBER_BYTES, LIST_BYTES, ELEMENT_BYTES, TEXT_BYTES = 200, 100, 72, 40, 48
WIDE_TEXT_BYTES, WIDE = 80, 4  # one character beyond ASCII, and each of its text takes up to four bytes
MOST_MEMBERS = 65_536  # of a record
MOST_VALUES = 500_000  # of a body that Python reads on the event loop, for some tenths of a second
VALUE_BYTES = 256  # of the limit, for each value: two million values of 512 MiB, which take two tenths of a second
SHAPED = 2  # as JSON has the values, and as the shape of the request keeps them


def check_json_size(body: bytes, max_bytes: int, *, is_shaped: bool = False) -> int:
    """Refuse JSON with too many values, or with records of too many members; return roughly the bytes that its values
    will take.

    Punctuation is counted also in texts, so a body is held to be larger than it is, never smaller. `is_shaped` says that
    Python reads it on the event loop, and a shape of pydantic checks and copies it. Raises BodyTooLarge.
    """
    n_colons, n_records, n_lists = (body.count(mark) for mark in (b":", b"{", b"["))
    n_records = max(1, n_records)
    if n_colons > MOST_MEMBERS * n_records:
        raise BodyTooLarge(f"A record has more than {MOST_MEMBERS:,} members.", max_members=MOST_MEMBERS)
    n_commas = body.count(b",")
    n_elements = max(0, n_commas - n_colons) + n_lists
    n_texts = max(0, body.count(b'"') // 2 - n_colons)
    n_bytes = RECORD_BYTES * n_records + MEMBER_BYTES * n_colons + LIST_BYTES * n_lists
    is_wide = not body.isascii() or b"\\u" in body
    n_bytes += ELEMENT_BYTES * n_elements + (WIDE_TEXT_BYTES if is_wide else TEXT_BYTES) * n_texts
    n_bytes += len(body) * (WIDE if is_wide else 1)
    n_bytes *= SHAPED if is_shaped else 1
    check_decoded_size(n_bytes, max_bytes)
    n_values = n_commas + n_records + n_lists
    most_values = min(MOST_VALUES, max_bytes // VALUE_BYTES) if is_shaped else max_bytes // VALUE_BYTES
    if n_values > most_values:
        raise BodyTooLarge(
            f"The body has {n_values:,} values; the limit is {most_values:,}. Send fewer at once.",
            max_values=most_values,
        )
    return n_bytes


def check_decoded_size(n_bytes: int, max_bytes: int) -> None:
    """Refuse a body that takes more than `max_bytes` decoded (BodyTooLarge)."""
    if n_bytes > max_bytes:
        raise BodyTooLarge(
            f"The decoded body would take {n_bytes:,} bytes; the limit is {max_bytes:,} (FEWPASS_MAX_DECODED_BYTES). Send fewer "
            "rows at once.",
            max_decoded_bytes=max_bytes,
        )


Decoded = TypeVar("Decoded")
# Members that hold the rows of a request; in a body they occur twice by mistake, or as the name or value of a column.
ROWS_MEMBERS = (b'"records"', b'"columns"', b'"inputs"', b'"instances"', b'"dataframe_records"', b'"dataframe_split"')
COLUMNS_MEMBERS = ("records", "columns", "inputs", "instances", "dataframe_records")
NAME_END = re.compile(rb'"\s*:')
MOST_READ_AGAIN = 1 << 16
MOST_OF_NAME = 80
IN_RECORD = re.compile(r"\$\.(\w+)\[(\d+)\]\[\.\.\.\]")
MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
TOO_DEEP = f"The body is nested too deeply: the limit is {MOST_NESTED} levels."
HALF_A_CHARACTER = "The body contains an unpaired surrogate (\\ud800 to \\udfff), which is not valid text."


def check_json_structure(body: bytes) -> None:
    """Refuse JSON that cannot be stored and shown unchanged (MalformedBody).

    Such are values nested more than `MOST_NESTED` deep, objects with two members of one name, of which readers keep one or
    the other, and halves of characters, which no database and no file name can hold. It does not check whether the
    text is JSON.
    """
    try:
        content = json.loads(body, object_pairs_hook=_object_of_distinct_names)
        is_deep = is_nested_deeper(content)
        if not is_deep and MAYBE_HALF.search(body):
            json.dumps(content, ensure_ascii=False).encode()
    except MalformedBody:
        raise
    except UnicodeEncodeError as error:
        raise MalformedBody(HALF_A_CHARACTER) from error
    except RecursionError:
        is_deep = True
    except ValueError:
        is_deep = False
    if is_deep:
        raise MalformedBody(TOO_DEEP)


def _object_of_distinct_names(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build the object from its members; a duplicate name raises MalformedBody."""
    whole = dict(members)
    if len(whole) < len(members):
        twice = Counter(name for name, _ in members).most_common(1)[0][0]
        raise MalformedBody(f"The body names {twice[:MOST_OF_NAME]!a} twice in one object. Keep one of the two.")
    return whole


def decode_json_body(decode: Callable[[bytes], Decoded], body: bytes, remedy: str) -> Decoded:
    """Decode a JSON body with a msgspec decoder; raises InvalidRequest or MalformedBody. `remedy` names what to send
    instead.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    if any(body.count(name) > 1 for name in ROWS_MEMBERS):  # of two, the decoder would keep one without a word
        check_json_structure(body)
    try:
        decoded = decode(body)
        if _may_repeat_columns(decoded, body):
            _refuse_repeated_columns(body)
        return decoded
    except msgspec.ValidationError as error:
        words = overlong_json_integer_text(body) if "out of range" in str(error) else ""
        raise InvalidRequest(f"{words or json_error_with_column(str(error), body)}. {remedy}") from error
    except RecursionError as error:  # where anything may stand, as among the parameters of a protocol
        raise MalformedBody(TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(
            f"The body is not JSON: {error}.{invalid_json_hint(body)}" if body else "The body is empty."
        ) from error


def _may_repeat_columns(decoded: Any, body: bytes) -> bool:
    """Detect whether a body has more members than its decoded rows and itself: of two columns of one name, the decoder
    keeps the last without a word. Names within texts, and members of other objects, may be counted, too.
    """
    n_names = 0
    for member in COLUMNS_MEMBERS:
        rows = getattr(decoded, member, None)
        if isinstance(rows, dict):
            n_names += len(rows)
        elif isinstance(rows, list):
            n_names += sum(len(row) for row in rows if isinstance(row, dict))
    if n_names == 0:
        return False
    n_found = body.count(b'":')
    if body.count(b":") > n_found:  # of a time within a text, or after a blank
        n_found = len(NAME_END.findall(body))
    return n_found - n_names > 1 and n_found - n_names > len(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))


def _refuse_repeated_columns(body: bytes) -> None:
    """Refuse a body in which an object has two members of one name (InvalidRequest)."""
    try:
        json.loads(body, object_pairs_hook=_object_of_distinct_names)
    except MalformedBody as error:
        raise InvalidRequest(str(error)) from error
    except (ValueError, RecursionError):  # a number of too many digits: the shape has accepted it as it is
        return


def json_error_with_column(words: str, body: bytes) -> str:
    """Return the error message with the column in place of msgspec's `[...]`, for bodies that are quick to parse again."""
    place = IN_RECORD.search(words)
    if place is None or len(body) > MOST_READ_AGAIN:
        return words
    try:
        record = json.loads(body)[place[1]][int(place[2])]
    except (ValueError, RecursionError):
        return words
    wrong = (name for name, value in record.items() if isinstance(value, list | dict) or value in (math.inf, -math.inf))
    return words.replace("[...]", f"[{next(wrong, '...')[:MOST_OF_NAME]!r}]", 1)


def overlong_json_integer_text(body: bytes) -> str:
    """Describe where a JSON text has an integer with more digits than Python reads; empty if nowhere."""
    most, too_long = sys.get_int_max_str_digits(), object()
    try:
        content = json.loads(body, parse_int=lambda digits: too_long if len(digits.lstrip("-")) > most else 0)
    except (ValueError, RecursionError):
        return ""
    left = [("body", content)]
    while left:
        place, value = left.pop()
        if value is too_long:
            return f"{place} is a whole number with more than {most:,} digits"
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        left += [(f"{place}.{name}", member) for name, member in members]
    return ""


def invalid_json_hint(body: bytes) -> str:
    """Return a hint at what may be wrong with a body that is not JSON."""
    if body.startswith(b"\x1f\x8b"):
        return " It is compressed by gzip: send it uncompressed."
    return " Write null for NaN and infinities." if b"NaN" in body or b"Infinity" in body else ""


def is_json_content_type(content_type: str | None) -> bool:
    """Return whether a content type is JSON: application/json or application/…+json."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return media_type.startswith("application/") and media_type.endswith(("/json", "+json"))
