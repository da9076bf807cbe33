"""What a body will hold once it is decoded, told from the body itself before anything of it is."""

from service.requests.problems import BodyTooLarge

# As Python has them: a dict, each of its members with its name, a list, each of its elements, and a text beyond its characters.
RECORD_BYTES, MEMBER_BYTES, LIST_BYTES, ELEMENT_BYTES, TEXT_BYTES = 200, 100, 72, 40, 48
WIDE_TEXT_BYTES, WIDE = 80, 4  # one character beyond ASCII, and each of its text takes up to four bytes
MOST_MEMBERS = 65_536  # of a record
MOST_VALUES = 500_000  # of a body that Python reads on the event loop: a tenth of a second
VALUE_BYTES = 256  # of the limit, for each value: two million values of 512 MiB, which take two tenths of a second
SHAPED = 2  # as JSON has the values, and as the shape of the request keeps them


def check_json(body: bytes, max_bytes: int, *, is_shaped: bool = False) -> int:
    """Refuse JSON of too many values, or of records of too many members; returns about the bytes that its values will take.

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
    check_bytes(n_bytes, max_bytes)
    n_values = n_commas + n_records + n_lists
    most_values = min(MOST_VALUES, max_bytes // VALUE_BYTES) if is_shaped else max_bytes // VALUE_BYTES
    if n_values > most_values:
        raise BodyTooLarge(
            f"The body has {n_values:,} values; at most {most_values:,} are read here. Send fewer at once.",
            max_values=most_values,
        )
    return n_bytes


def check_csv(body: bytes, max_bytes: int) -> int:
    """Refuse a CSV of too many values (BodyTooLarge); returns about the bytes that they will take."""
    n_bytes = len(body) + 16 * (body.count(b",") + body.count(b"\n"))
    check_bytes(n_bytes, max_bytes)
    return n_bytes


def check_bytes(n_bytes: int, max_bytes: int) -> None:
    """Refuse what would hold too much (BodyTooLarge)."""
    if n_bytes > max_bytes:
        raise BodyTooLarge(
            f"The body would take {n_bytes:,} bytes decoded; at most {max_bytes:,} are (FEWPASS_MAX_DECODED_BYTES). Send fewer "
            "rows at once.",
            max_decoded_bytes=max_bytes,
        )
