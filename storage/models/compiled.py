"""The compiled form of a model: an Arrow IPC file of named arrays, mapped by serving processes without a copy.

It holds one record batch of one row, with one large-list column per array: so an array is one contiguous buffer of the
file. The header, the dtypes and the shapes are compressed JSON in the metadata of the Arrow schema, with its SHA-256; it also
has a checksum of the whole file (XXH3, as fast as memory), which is verified whenever the file is mapped: it shows
damage, and not malice.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
import xxhash

from storage.errors import CorruptFile, Unstorable
from storage.files.atomic_files import write_file_atomically

Header = dict[str, object]
Arrays = dict[str, np.ndarray]

# Earlier releases wrote the JSON as text, and the first no sum of the whole file.
_FORMAT, _OF_TEXT, _UNSEALED = b"fewpass:3", b"fewpass:2", b"fewpass:1"
_JSON_BYTES = b"fewpass.json_bytes"
_JSON, _JSON_SHA256, _FORMAT_KEY, _SEAL = b"fewpass.json", b"fewpass.sha256", b"fewpass.format", b"fewpass.xxh3"
PACKING = 6  # zstd's level
MOST_JSON = 1 << 30
SUM_DIGITS, _PIECE = 32, 1 << 22
# What Arrow holds as numpy does. All else (bool is a bit there) is held as bytes, and viewed.
_NATIVE = {np.dtype(code) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")}


class _Description(TypedDict):
    """Description of an array in the file's JSON."""

    name: str
    dtype: str
    shape: list[int]


def array_bytes(name: str, array: np.ndarray) -> np.ndarray:
    """Return the elements of an array in C order, (nbytes,) uint8, without a copy where possible.

    Raises Unstorable if the elements are Python objects, or have fields.
    """
    array = np.asarray(array)
    if array.dtype.hasobject or array.dtype.names or array.dtype.itemsize == 0:
        reason = f"its dtype {array.dtype} is not numeric, boolean or fixed-width text."
        raise Unstorable(f"Array {name!r}", reason)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _described(arrays: Mapping[str, np.ndarray]) -> list[_Description]:
    """Return name, dtype and shape of each array in JSON form."""
    return [
        {"name": name, "dtype": np.asarray(array).dtype.str, "shape": list(np.shape(array))}
        for name, array in arrays.items()
    ]


def header_json(value: object) -> str:
    """Return the JSON of a header; Unstorable if it holds a type that JSON lacks."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        reason = f"{error}. Use str, int, float, bool, None, list and dict."
        raise Unstorable("The header of the model", reason) from error


def write_compiled(
    path: Path | str,
    header: Mapping[str, object],
    arrays: Mapping[str, np.ndarray],
    *,
    replace: bool = False,
    most_packed: int = 0,
) -> None:
    """Publish the compiled form of a model: a header of JSON values, and arrays by name.

    The arrays are of any shape, of numbers, booleans or fixed-width text. With `replace` a file of that name is replaced;
    processes that have mapped it keep what they have. Arrays of at most `most_packed` bytes together are compressed:
    each process that maps them has its own copy in memory. Raises Unstorable; Conflict if the name is taken and
    `replace` is false; Unwritable.
    """
    text = header_json({"header": dict(header), "arrays": _described(arrays)}).encode()
    columns = [_list_of(name, np.asarray(array)) for name, array in arrays.items()]
    # Columns are numbered: Arrow allows names twice, JSON in our metadata is what maps them.
    fields = [pa.field(str(i), column.type, nullable=False) for i, column in enumerate(columns)]
    metadata = {_FORMAT_KEY: _FORMAT, _JSON_SHA256: hashlib.sha256(text).hexdigest().encode()}
    metadata |= {_JSON: _zstd().compress(text, asbytes=True), _JSON_BYTES: str(len(text)).encode()}
    token = _token(text)
    metadata[_SEAL] = token + b"0" * SUM_DIGITS
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))
    with write_file_atomically(path, replace=replace) as draft:
        codec = _zstd() if batch.nbytes <= most_packed else None
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.OSFile(str(draft), "wb") as file, pa.ipc.new_file(file, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        write_embedded_checksum(draft, token)


def _zstd() -> pa.Codec:
    return pa.Codec("zstd", PACKING)


def _json_text(metadata: Mapping[bytes, bytes]) -> bytes:
    """Return the JSON of a file's metadata, which Arrow writes twice."""
    if metadata[_FORMAT_KEY] != _FORMAT:
        return metadata[_JSON]
    n_bytes = int(metadata[_JSON_BYTES])
    if n_bytes > MOST_JSON:
        raise ValueError(f"Its header has {n_bytes:,} bytes")
    return bytes(_zstd().decompress(metadata[_JSON], decompressed_size=n_bytes, asbytes=True))


def _token(text: bytes) -> bytes:
    """Return the unique token that marks the positions of the checksum in the file."""
    return hashlib.sha256(b"seal:" + text).hexdigest().encode()


def _list_of(name: str, array: np.ndarray) -> pa.LargeListArray:
    flat = array_bytes(name, array)
    if array.dtype in _NATIVE:
        flat = flat.view(array.dtype)
    return pa.LargeListArray.from_arrays(pa.array([0, flat.size], pa.int64()), pa.array(flat))


def map_compiled(path: Path | str) -> tuple[Header, Arrays]:
    """Map the compiled form of a model into memory: return the header, and name -> read-only array; CorruptFile if it
    is damaged.

    All of it is read once, to check its sum, at the speed of memory where the kernel holds the file already; so no flipped
    bit becomes an answer. Files of earlier releases have no such sum. All arrays are views of one mapping that lives as
    long as any of them.
    """
    path = Path(path)
    try:
        batch = _mapped_batch(path)
        text = _json_text(batch.schema.metadata)
        if hashlib.sha256(text).hexdigest().encode() != batch.schema.metadata[_JSON_SHA256]:
            raise CorruptFile(path, "its header has changed. Rebuild it from the model's DuckDB file.")
        _check_seal(path, batch.schema.metadata, text)
        contents = json.loads(text)
        arrays = {spec["name"]: _array(batch.column(i), spec) for i, spec in enumerate(contents["arrays"])}
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CorruptFile):
            raise
        raise CorruptFile(path, f"{error}. Rebuild it from the model's DuckDB file.") from error
    return contents["header"], arrays


def _check_seal(path: Path, metadata: Mapping[bytes, bytes], text: bytes) -> None:
    if metadata[_FORMAT_KEY] == _UNSEALED:
        return
    token = _token(text)
    if metadata[_SEAL][: len(token)] != token or not is_embedded_checksum_valid(
        path, token, metadata[_SEAL][len(token) :]
    ):
        raise CorruptFile(path, "its checksum does not match. Rebuild it from the model's DuckDB file.")


def _mapped_batch(path: Path) -> pa.RecordBatch:
    # The mapping outlives this handle: Arrow's buffers refer to it.
    with pa.memory_map(str(path), "r") as file, pa.ipc.open_file(file) as reader:
        known = (reader.schema.metadata or {}).get(_FORMAT_KEY) in (_FORMAT, _OF_TEXT, _UNSEALED)
        if not known or reader.num_record_batches != 1:
            raise ValueError("It is not a compiled model of this release")
        batch = reader.get_batch(0)
    batch.validate()
    return batch


def _array(column: pa.LargeListArray, spec: _Description) -> np.ndarray:
    dtype, shape = np.dtype(spec["dtype"]), tuple(spec["shape"])
    values = column.values
    if len(column) != 1 or len(values) * (values.type.bit_width // 8) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"Array {spec['name']!r} does not have its {shape} elements")
    flat = values.to_numpy(zero_copy_only=True)
    # An empty array has no buffer to be a view of.
    array = np.empty(shape, dtype) if flat.size == 0 else flat.view(dtype).reshape(shape)
    array.flags.writeable = False
    return array


def write_embedded_checksum(path: Path, token: bytes) -> None:
    """Write the checksum of a draft file into the positions reserved in it.

    `token` stands where the sum belongs, before as many zeros as a sum has digits.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        places = _places(content, token)
        checksum = _sum_without(content, places)
        for place in places:
            content[place : place + SUM_DIGITS] = checksum
        content.flush()


def is_embedded_checksum_valid(path: Path, token: bytes, digest: bytes) -> bool:
    """Return whether a file matches its embedded checksum; the whole file is read once."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        places = _places(content, token)
        is_written = all(content[place : place + SUM_DIGITS] == digest for place in places)
        return is_written and _sum_without(content, places) == digest


def _places(content: mmap.mmap, token: bytes) -> list[int]:
    """Return the positions of the checksum: Arrow writes schema metadata at the start, and again at the end."""
    starts = {content.find(token), content.rfind(token)} - {-1}
    return [place + len(token) for place in sorted(starts)]


def _sum_without(content: mmap.mmap, places: list[int]) -> bytes:
    """Return the checksum of all bytes, with zeros in place of the checksum itself."""
    whole, at = xxhash.xxh3_128(), 0
    with memoryview(content) as view:
        for place in [*places, len(content)]:
            # As views, each released before the next: a mapping with views cannot close.
            for begin in range(at, place, _PIECE):
                with view[begin : min(begin + _PIECE, place)] as piece:
                    whole.update(piece)
                # Pages that have been read need not count as memory of this process.
                content.madvise(mmap.MADV_DONTNEED, begin - begin % mmap.PAGESIZE, _PIECE)
            if place < len(content):
                whole.update(b"0" * SUM_DIGITS)
                at = place + SUM_DIGITS
    return whole.hexdigest().encode()
