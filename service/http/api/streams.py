"""Arrow IPC streams from outside: read whole, and told from those that could take long."""

from struct import Struct, error

import pyarrow as pa

from service.problems import BodyTooLarge, MalformedBody

MAX_SCHEMAS, MAX_SCHEMA_BYTES = 64, 65_536  # that are remembered
CONTINUED = 0xFFFFFFFF
RECORD_BATCH = 3
ENDINGS = (b"", b"\xff\xff\xff\xff\0\0\0\0")
# Fields of the flatbuffers Message and RecordBatch, by number.
HEADER_TYPE, HEADER, BODY_LENGTH = 1, 2, 3
COMPRESSION = 3

_prefix, _unsigned, _signed = Struct("<Ii").unpack_from, Struct("<I").unpack_from, Struct("<i").unpack_from
_short, _long = Struct("<H").unpack_from, Struct("<q").unpack_from


def read_stream(body: bytes, max_rows: int) -> pa.Table:
    """The table of an Arrow IPC stream; what stands in its buffers is checked when it is encoded.

    Raises
    ------
    MalformedBody, BodyTooLarge
    """
    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
            _ = table.column_names  # which may not be UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as failure:
        raise MalformedBody(f"The body is not an Arrow IPC stream: {failure}") from failure
    if table.num_rows > max_rows:
        raise BodyTooLarge(f"{table.num_rows} rows; at most {max_rows} are answered at once.", max_rows=max_rows)
    return table


class QuickStreams:
    """Reads the streams that most clients send: a schema, one batch that is not compressed, the end.

    Such a stream holds as many bytes as its body and no more. The schema of one client is always the same, so it is
    parsed once.
    """

    def __init__(self) -> None:
        self.schemas: dict[bytes, tuple[pa.Schema, tuple[str, ...]]] = {}

    def read(self, body: bytes) -> tuple[pa.RecordBatch, tuple[str, ...]] | None:
        """The batch and the names of its columns; None for any other stream, and for whatever is not understood."""
        try:
            begin = end_of_message(body, 0)
            end = end_of_message(body, begin)
            if not _is_plain_batch(body, begin) or body[end:] not in ENDINGS:
                return None
            schema, names = self._schema_of(body[:begin])
            rest = pa.py_buffer(body).slice(begin)
            return pa.ipc.read_record_batch(pa.ipc.read_message(rest), schema), names
        except (error, IndexError, pa.ArrowException, OSError, UnicodeDecodeError):
            return None

    def _schema_of(self, message: bytes) -> tuple[pa.Schema, tuple[str, ...]]:
        known = self.schemas.get(message)
        if known is None:
            schema = pa.ipc.read_schema(pa.py_buffer(message))
            known = schema, tuple(schema.names)
            if len(message) <= MAX_SCHEMA_BYTES:
                if len(self.schemas) >= MAX_SCHEMAS:
                    self.schemas.clear()
                self.schemas[message] = known
        return known


def end_of_message(body: bytes, place: int) -> int:
    """Where the message at a place of a stream ends, its buffers included.

    Raises
    ------
    struct.error, IndexError
        If there is none such.
    """
    marker, size = _prefix(body, place)
    if marker != CONTINUED or size <= 0:
        raise IndexError
    length = _field(body, _message(body, place), BODY_LENGTH)
    n_bytes = _long(body, length)[0] if length else 0
    if n_bytes < 0:
        raise IndexError
    end: int = place + 8 + size + n_bytes
    return end


def _message(body: bytes, place: int) -> int:
    return place + 8 + int(_unsigned(body, place + 8)[0])


def _is_plain_batch(body: bytes, place: int) -> bool:
    message = _message(body, place)
    kind, header = _field(body, message, HEADER_TYPE), _field(body, message, HEADER)
    return bool(kind and body[kind] == RECORD_BATCH and header and not _is_compressed(body, header))


def _is_compressed(body: bytes, header: int) -> bool:
    return _field(body, header + _unsigned(body, header)[0], COMPRESSION) != 0


def _field(body: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffers table is; 0 if it has none such."""
    layout = table - _signed(body, table)[0]
    entry = 4 + 2 * number
    if layout < 0 or entry >= _short(body, layout)[0]:
        return 0
    offset = _short(body, layout + entry)[0]
    return table + offset if offset else 0
