"""What a body will hold once it is decoded, told from the body itself before anything of it is."""

from struct import Struct, error

from service.http.api.flatbuffers import field, signed_long, table_at, vector_at
from service.problems import BodyTooLarge, MalformedBody

CONTINUED = -1
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
# Fields of the flatbuffers Message, RecordBatch and DictionaryBatch, by number.
HEADER_TYPE, HEADER, BODY_LENGTH = 1, 2, 3
LENGTH, BUFFERS, COMPRESSION = 0, 2, 3
DATA = 1
NOT_COMPRESSED = -1  # a buffer that compression would have made longer
MEMBER_BYTES, ELEMENT_BYTES = 100, 32  # of a dict with its name, and of a list, as Python has them
MOST_MEMBERS = 65_536  # of a record

_signed, _long, _buffer = Struct("<i").unpack_from, Struct("<q").unpack_from, Struct("<qq").unpack_from


def check_arrow(body: bytes, max_rows: int, max_bytes: int) -> int:
    """Refuse an Arrow IPC stream that would hold too much; returns the bytes that it will.

    A compressed buffer begins with its length: those are added up, as are the rows of all batches, and nothing is decompressed.

    Raises
    ------
    BodyTooLarge, MalformedBody

    References
    ----------
    Apache Arrow, Columnar Format, Encapsulated message format and RecordBatch; Message.fbs.
    """
    n_bytes = n_rows = at = 0
    try:
        while at < len(body):
            metadata, size = _metadata(body, at)
            if size == 0:
                break
            message = table_at(body, metadata)
            begin = metadata + size
            length = field(body, message, BODY_LENGTH)
            end = begin + (signed_long(body, length) if length else 0)
            if size < 0 or not begin <= end <= len(body):
                raise MalformedBody("The body is not an Arrow IPC stream: it is cut off.")
            batch, is_dictionary = _batch_of(body, message)
            if batch:
                rows, held = _decoded(body, batch, begin, end)
                n_bytes += held
                n_rows += 0 if is_dictionary else rows
            if n_rows > max_rows:
                raise BodyTooLarge(f"{n_rows} rows in one request; the limit is {max_rows}.", max_rows=max_rows)
            check_bytes(n_bytes, max_bytes)
            at = end
    except (error, IndexError) as failure:
        raise MalformedBody("The body is not an Arrow IPC stream: it is cut off.") from failure
    return n_bytes


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


def _metadata(body: bytes, at: int) -> tuple[int, int]:
    """Where the metadata of the message at a place begins, and its bytes; before Arrow 0.15 messages had no marker."""
    first = _signed(body, at)[0]
    return (at + 8, _signed(body, at + 4)[0]) if first == CONTINUED else (at + 4, first)


def _batch_of(body: bytes, message: int) -> tuple[int, bool]:
    """Where the record batch of a message is, 0 if there is none; and whether it is a dictionary's."""
    kind, header = field(body, message, HEADER_TYPE), field(body, message, HEADER)
    if not kind or not header or body[kind] not in (DICTIONARY_BATCH, RECORD_BATCH):
        return 0, False
    batch = table_at(body, header)
    if body[kind] == RECORD_BATCH:
        return batch, False
    data = field(body, batch, DATA)
    return (table_at(body, data) if data else 0), True


def _decoded(body: bytes, batch: int, begin: int, end: int) -> tuple[int, int]:
    """Rows and bytes of a batch whose buffers lie between two places of the body."""
    length, buffers = field(body, batch, LENGTH), field(body, batch, BUFFERS)
    n_rows = signed_long(body, length) if length else 0
    if n_rows < 0:
        raise MalformedBody("The body is not an Arrow IPC stream: a batch has a negative number of rows.")
    if not buffers:
        return n_rows, 0
    is_compressed = field(body, batch, COMPRESSION) != 0
    first, n_buffers = vector_at(body, buffers)
    if first + 16 * n_buffers > begin:
        raise MalformedBody("The body is not an Arrow IPC stream: it is cut off.")
    n_bytes = 0
    for place in range(first, first + 16 * n_buffers, 16):
        offset, size = _buffer(body, place)
        if offset < 0 or size < 0 or begin + offset + size > end:
            raise MalformedBody("The body is not an Arrow IPC stream: a buffer lies outside its message.")
        if is_compressed and size:
            told = _long(body, begin + offset)[0] if size >= 8 else -2
            if told < NOT_COMPRESSED:
                raise MalformedBody("The body is not an Arrow IPC stream: a compressed buffer lacks its length.")
            size = size - 8 if told == NOT_COMPRESSED else told
        n_bytes += size
    return n_rows, n_bytes
