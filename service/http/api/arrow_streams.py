"""Arrow IPC streams from clients: read completely, with small plain streams distinguished from those that could take
long.

References
----------
FlatBuffers, Internals: tables, vtables and vectors, of which the messages of a stream are made.
"""

from struct import Struct, error

import numpy as np
import pyarrow as pa

from service.http.api.bodies import check_n_rows
from service.http.api.json_bodies import check_decoded_size
from service.requests.problems import MalformedBody, UnsupportedMediaType

MAX_SCHEMAS, MAX_SCHEMA_BYTES = 64, 65_536  # that are remembered
CONTINUED = 0xFFFFFFFF
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
ENDINGS = (b"", b"\xff\xff\xff\xff\0\0\0\0")
# Fields of the flatbuffers Message, RecordBatch, DictionaryBatch and Schema, by number.
HEADER_TYPE, HEADER, BODY_LENGTH = 1, 2, 3
COMPRESSION = 3
DATA = 1
BYTE_ORDER = 0

_prefix, _long = Struct("<Ii").unpack_from, Struct("<q").unpack_from
_unsigned, _signed, _short = (Struct(kind).unpack_from for kind in ("<I", "<i", "<H"))


def read_arrow_stream(body: bytes, max_rows: int, max_bytes: int) -> pa.Table:
    """Read the table of an Arrow IPC stream; its buffers are checked later, when the table is encoded.

    Nothing of it is compressed, so it holds the bytes of the body and no others, however often it shows them. Raises
    MalformedBody, BodyTooLarge or UnsupportedMediaType.
    """
    try:
        refuse_compressed_arrow_stream(body)
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
            _ = table.column_names  # which may not be UTF-8
        check_n_rows(table.num_rows, max_rows)
        table.validate()
    except (pa.ArrowException, OSError, UnicodeDecodeError, error, IndexError) as failure:
        raise MalformedBody(f"The body is not an Arrow IPC stream: {failure}") from failure
    check_decoded_size(table.nbytes, max_bytes)
    check_decoded_size(sum(_viewed_bytes(chunk) for column in table.columns for chunk in column.chunks), max_bytes)
    return table


def refuse_compressed_arrow_stream(body: bytes) -> None:
    """Refuse a stream that has a compressed batch: a small one may expand to gigabytes.

    Raises UnsupportedMediaType; pyarrow.ArrowException, struct.error or IndexError if it is no stream.
    """
    for read in pa.ipc.MessageReader.open_stream(body):
        metadata = read.metadata.to_pybytes()
        message = _table_at(metadata, 0)
        kind, header = _field(metadata, message, HEADER_TYPE), _field(metadata, message, HEADER)
        if kind and header and metadata[kind] == DICTIONARY_BATCH:
            header = _field(metadata, _table_at(metadata, header), DATA)
        elif not kind or metadata[kind] != RECORD_BATCH:
            continue
        if header and _is_compressed(metadata, header):
            raise UnsupportedMediaType("The Arrow stream is compressed. Send it without compression.")


def _has_views(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _viewed_bytes(column: pa.Array) -> int:
    """Bytes of the texts of a column of views, many of which may share the same bytes; 0 for any other column."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    if not _has_views(column.type):
        return 0
    views = column.buffers()[1]
    if views is None:
        return 0
    lengths = np.frombuffer(views, np.int32, views.size // 16 * 4)[::4][column.offset : column.offset + len(column)]
    return int(np.maximum(lengths, 0).sum(dtype=np.int64))


class QuickStreams:
    """Fast reader for the streams that most clients send: a schema, one uncompressed batch, the end.

    Such a stream holds as many bytes as its body and no more. The schema of one client is always the same, so it is
    parsed once.
    """

    def __init__(self) -> None:
        self.schemas: dict[bytes, tuple[pa.Schema, tuple[str, ...]]] = {}

    def read(self, body: bytes) -> tuple[pa.RecordBatch, tuple[str, ...]] | None:
        """Return the batch and its column names; None for any other stream and for one that cannot be parsed."""
        try:
            begin = arrow_message_end(body, 0)
            end = arrow_message_end(body, begin)
            if not _is_plain_batch(body, begin) or body[end:] not in ENDINGS:
                return None
            schema, names = self._schema_of(body[:begin])
            if any(map(_has_views, schema.types)):  # which may show the same bytes again and again
                return None
            rest = pa.py_buffer(body).slice(begin)
            return pa.ipc.read_record_batch(pa.ipc.read_message(rest), schema), names
        except (error, IndexError, pa.ArrowException, OSError, UnicodeDecodeError):
            return None

    def _schema_of(self, message: bytes) -> tuple[pa.Schema, tuple[str, ...]]:
        known = self.schemas.get(message)
        if known is None:
            if _is_swapped(message):
                raise pa.ArrowNotImplementedError("Send the stream in little-endian byte order.")
            schema = pa.ipc.read_schema(pa.py_buffer(message))
            known = schema, tuple(schema.names)
            if len(message) <= MAX_SCHEMA_BYTES:
                if len(self.schemas) >= MAX_SCHEMAS:
                    self.schemas.clear()
                self.schemas[message] = known
        return known


def arrow_message_end(body: bytes, place: int) -> int:
    """Return the offset at which the message at `place` ends, with its buffers; raises struct.error or IndexError
    without a message.
    """
    marker, size = _prefix(body, place)
    if marker != CONTINUED or size <= 0:
        raise IndexError
    length = _field(body, _table_at(body, place + 8), BODY_LENGTH)
    n_bytes = _long(body, length)[0] if length else 0
    if n_bytes < 0:
        raise IndexError
    end: int = place + 8 + size + n_bytes
    return end


def _is_swapped(schema: bytes) -> bool:
    """Return whether a schema message declares big-endian numbers."""
    header = _field(schema, _table_at(schema, 8), HEADER)
    order = _field(schema, _table_at(schema, header), BYTE_ORDER) if header else 0
    return bool(order and _short(schema, order)[0])


def _is_plain_batch(body: bytes, place: int) -> bool:
    message = _table_at(body, place + 8)
    kind, header = _field(body, message, HEADER_TYPE), _field(body, message, HEADER)
    return bool(kind and body[kind] == RECORD_BATCH and header and not _is_compressed(body, header))


def _is_compressed(body: bytes, header: int) -> bool:
    return _field(body, _table_at(body, header), COMPRESSION) != 0


def _table_at(body: bytes, place: int) -> int:
    """Return the position of the table that the offset at `place` points to; struct.error beyond the body, as in all
    these functions.
    """
    return place + int(_unsigned(body, place)[0])


def _field(body: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table; 0 if the table lacks it."""
    layout = table - _signed(body, table)[0]
    entry = 4 + 2 * number
    if layout < 0 or entry >= _short(body, layout)[0]:
        return 0
    offset = _short(body, layout + entry)[0]
    return table + offset if offset else 0
