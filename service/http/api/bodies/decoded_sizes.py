"""What a body will hold once it is decoded, told from the body itself before anything of it is."""

from service.requests.problems import BodyTooLarge

MEMBER_BYTES, ELEMENT_BYTES = 100, 32  # of a dict with its name, and of a list, as Python has them
MOST_MEMBERS = 65_536  # of a record


def check_json(body: bytes, max_bytes: int) -> int:
    """Refuse JSON of too many values, or of records of too many members; returns about the bytes that its values will take.

    Commas and colons are counted also in texts, so a body is held to be larger than it is, never smaller.

    Raises
    ------
    BodyTooLarge
    """
    n_colons = body.count(b":")
    n_records = max(1, body.count(b"{"))
    if n_colons > MOST_MEMBERS * n_records:
        raise BodyTooLarge(f"A record has more than {MOST_MEMBERS:,} members.", max_members=MOST_MEMBERS)
    n_elements = max(0, body.count(b",") - n_colons)
    n_bytes = MEMBER_BYTES * max(n_colons, n_records) + ELEMENT_BYTES * n_elements
    check_bytes(n_bytes, max_bytes)
    return n_bytes


def check_csv(body: bytes, max_bytes: int) -> int:
    """Refuse a CSV of too many values; returns about the bytes that they will take.

    Raises
    ------
    BodyTooLarge
    """
    n_bytes = len(body) + 16 * (body.count(b",") + body.count(b"\n"))
    check_bytes(n_bytes, max_bytes)
    return n_bytes


def check_bytes(n_bytes: int, max_bytes: int) -> None:
    """Refuse what would hold too much.

    Raises
    ------
    BodyTooLarge
    """
    if n_bytes > max_bytes:
        raise BodyTooLarge(
            f"The body would take {n_bytes:,} bytes decoded; at most {max_bytes:,} are (FEWPASS_MAX_DECODED_BYTES). Send fewer "
            "rows at once.",
            max_decoded_bytes=max_bytes,
        )
