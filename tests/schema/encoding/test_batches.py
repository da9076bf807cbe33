"""Batches in one call: text as a dictionary finds it, any Arrow type, any slice, and what a hostile stream may hold."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.errors import InvalidBuffers, SchemaError
from learners.kernels.jit import kernel
from learners.schema import Attribute, Schema
from learners.schema.encoding.batches import IndexCheck, concatenate_text_tables, text_hash_table
from learners.schema.encoding.encode import encode
from learners.schema.hash_kernels import is_ascii_text, lookup_text_code
from tests.naive.encoding import codes_of

# Short and long ones that share their first eight, sixteen bytes; some of several bytes per letter.
WORDS = st.text(max_size=6) | st.text("ab", min_size=7, max_size=25) | st.text("aé\0", max_size=9)
WHOLE_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
NUMBER_TYPES = [*WHOLE_TYPES, pa.float16(), pa.float32(), pa.float64()]

SPOILED = pa.RecordBatch.from_pydict(
    {
        "word": pa.array(["a", "b", None, "a long word of no domain"] * 3),
        "large": pa.array(["a", "b", None, "grün"] * 3, pa.large_string()),
        "view": pa.array(["a", "b", None, "a long word of no domain"] * 3, pa.string_view()),
        "dictionary": pa.array(["a", "b", None, "c"] * 3).dictionary_encode(),
        "number": pa.array([1.0, None, 3.0, 4.0] * 3),
        "byte": pa.array([1, None, 3, 4] * 3, pa.uint8()),
        "other": pa.array(["x", None, "y", "z"] * 3),
    }
)


@kernel
def looked_up(address, length, end, table, mask, more):
    return is_ascii_text(address, length, end), lookup_text_code(address, length, end, table, mask, more)


def code_in(word, table, first_slot, mask, words):
    text = np.frombuffer(word.encode() or b"\0", np.uint8)
    address, length = np.uint64(text.ctypes.data), len(word.encode())
    slots = np.uint64(words.slots.ctypes.data + 32 * first_slot)
    more = np.uint64(words.more.ctypes.data)
    end = np.uint64(address + np.uint64(length))
    has_no_high_bit, code = looked_up(address, length, end, slots, mask, more)
    assert has_no_high_bit == word.isascii()
    return code


@given(st.lists(st.lists(WORDS, max_size=40, unique=True), max_size=3), st.lists(WORDS, max_size=40))
def test_text_is_found_as_in_a_dictionary(domains, others):
    words, first_slots, masks = concatenate_text_tables([text_hash_table(domain, 5) for domain in domains])
    for domain, slot, mask in zip(domains, first_slots.tolist(), masks.tolist(), strict=False):
        known = {word: 5 + number for number, word in enumerate(domain)}
        for word in [*others, *domain]:
            assert code_in(word, domain, slot, mask, words) == known.get(word, -1)


def test_words_that_differ_in_any_byte_have_slots_of_their_own():
    for pattern in ("{}", "{}......", ".......{}", "value number {}", "{} is in front of a longer text", "{:>30}"):
        table = text_hash_table([pattern.format(i) for i in range(500)], 0)
        taken = np.flatnonzero(table.slots[:, 0] >= 0)
        ends = np.flatnonzero(np.concatenate([[True], np.diff(taken) > 1, [True]]))
        assert taken.size == 500
        assert np.diff(ends).max() < 60, f"{pattern}: a long run of taken slots"


TEXT_TYPES = [
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.dictionary(index(), pa.string()) for index in (pa.int8, pa.uint8, pa.int16, pa.uint16, pa.int32, pa.uint32)),
    pa.dictionary(pa.int64(), pa.large_string()),
    pa.dictionary(pa.uint64(), pa.string()),
]


def days_of(seconds):
    days = [None if second is None else second // 86_400 for second in seconds]
    return pa.array(days, pa.int32()).cast(pa.date32())


@st.composite
def wide_batches(draw):
    """A schema of text, bytes and numbers, and a batch of columns of any type that holds them; some absent, some more."""
    n_rows = draw(st.integers(0, 20))
    attributes, columns, arrays = [], {}, {}
    for i in range(draw(st.integers(1, 6))):
        name, has_missing = f"x{i}", draw(st.booleans())
        kind = draw(st.sampled_from(["text", "bytes", "number", "flag", "day"]))
        if kind == "text":
            domain = tuple(sorted(draw(st.sets(WORDS, min_size=1, max_size=5))))
            attribute = Attribute(name, "nominal", domain, has_missing=has_missing, n_folded=draw(st.integers(0, 1)))
            values, arrow_type = st.sampled_from(domain) | WORDS, draw(st.sampled_from(TEXT_TYPES))
        elif kind == "bytes":
            domain = tuple(sorted(draw(st.sets(st.integers(-3, 5), min_size=1))))
            attribute = Attribute(name, "nominal", domain, has_missing=has_missing)
            values, arrow_type = st.integers(0, 9), draw(st.sampled_from(WHOLE_TYPES))
        elif kind == "flag":
            domain = draw(st.sampled_from([(False, True), (True,), (0, 1, 2)]))
            attribute = Attribute(name, "nominal", domain, has_missing=has_missing)
            values, arrow_type = st.booleans(), pa.bool_()
        elif kind == "day":
            cuts = tuple(sorted(draw(st.sets(st.integers(-9, 9).map(lambda cut: cut * 43_200.0), max_size=60))))
            attribute = Attribute(name, "numeric", cuts=cuts, has_missing=has_missing, arrow_type="date32[day]")
            values, arrow_type = st.integers(-5, 5).map(lambda day: day * 86_400), pa.date32()
        else:
            cuts = tuple(sorted(draw(st.sets(st.integers(-2, 9).map(lambda cut: cut / 2), max_size=5))))
            attribute = Attribute(name, "numeric", cuts=cuts, has_missing=has_missing, arrow_type="double")
            values, arrow_type = st.integers(0, 9), draw(st.sampled_from(NUMBER_TYPES))
        attributes.append(attribute)
        if draw(st.integers(0, 5)):
            columns[name] = draw(st.lists(st.none() | values, min_size=n_rows, max_size=n_rows))
            arrays[name] = pa.array(columns[name], arrow_type) if kind != "day" else days_of(columns[name])
    columns["more"] = list(range(n_rows))
    arrays["more"] = pa.array(columns["more"])
    return Schema(tuple(attributes), None, ("",)), columns, pa.RecordBatch.from_pydict(arrays)


@given(wide_batches(), st.booleans(), st.integers(0, 9), st.integers(0, 20))
def test_any_batch_has_the_codes_of_the_naive_encoder(drawn, is_trusted, first, n_rows):
    schema, columns, batch = drawn
    assert encode(batch, schema, is_trusted).x.tolist() == codes_of(columns, schema)
    some = {name: values[first : first + n_rows] for name, values in columns.items()}
    assert encode(batch.slice(first, n_rows), schema, is_trusted).x.tolist() == codes_of(some, schema)


@given(wide_batches(), st.sampled_from([None, "lz4", "zstd"]), st.integers(0, 7))
def test_streams_of_any_alignment_have_these_codes_too(drawn, compression, shift):
    schema, columns, batch = drawn
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    moved = pa.py_buffer(b"\0" * shift + sink.getvalue().to_pybytes()).slice(shift)
    table = pa.ipc.open_stream(moved).read_all()
    assert encode(table, schema, is_trusted=False).x.tolist() == [2 * row for row in codes_of(columns, schema)]


def test_a_dictionary_with_a_null_of_its_own():
    schema = Schema((Attribute("x", "nominal", ("a", "b"), has_missing=True),), None, ("",))
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 1]), pa.array(["b", None, "c"]))
    batch = pa.RecordBatch.from_pydict({"x": column})
    assert encode(batch, schema, is_trusted=False).x.tolist() == [[2, 0, 0, 3, 0]]


def test_wide_domains_have_wide_codes():
    domain = tuple(sorted(f"value number {i}" for i in range(3000)))
    schema = Schema((Attribute("x", "nominal", domain),), None, ("",))
    table = pa.table({"x": [*domain[::-1], "no value"]})
    assert encode(table, schema).x.tolist() == [[*range(2999, -1, -1), 3000]]
    assert pickle.loads(pickle.dumps(schema)) == schema, "with what was kept for encoding"


def array_of(kind, n_rows, *buffers, **more):
    held = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, n_rows, held, **more)


def integers(*values, kind=np.int32):
    return np.array(values, kind).tobytes()


def dictionary_of(*indices, arrow_type=None):
    return pa.DictionaryArray.from_arrays(pa.array(indices, arrow_type or pa.int8()), pa.array(["a", "b"]), safe=False)


HOSTILE = {
    "offsets descend": array_of(pa.string(), 3, None, integers(0, 3, 1, 3), b"abc"),
    "offsets beyond the text": array_of(pa.string(), 3, None, integers(0, 1, 1 << 30, 3), b"abc"),
    "a large offset": array_of(pa.large_string(), 2, None, integers(0, 1 << 60, 2, kind=np.int64), b"abc"),
    "no UTF-8": array_of(pa.string(), 2, None, integers(0, 1, 3), b"a\xff\xfe"),
    "no UTF-8 in a dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 0]), array_of(pa.string(), 1, None, integers(0, 2), b"\xc3\x28")
    ),
    "an index beyond the dictionary": dictionary_of(0, 5, 1),
    "a negative index": dictionary_of(0, -1, 1),
    "an unsigned index beyond the dictionary": dictionary_of(0, 255, arrow_type=pa.uint8()),
    "fewer nulls than told": array_of(pa.string(), 2, b"\x03", integers(0, 1, 2), b"ab", null_count=1),
}


@pytest.mark.parametrize("column", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", ["x", "other"])
def test_what_is_not_valid_is_refused(column, name):
    schema = Schema((Attribute("x", "nominal", ("a", "b")), Attribute("z", "numeric")), None, ("",))
    batch = pa.RecordBatch.from_arrays([column], [name])
    with pytest.raises((InvalidBuffers, SchemaError)):
        encode(batch, schema, is_trusted=False)


def test_numbers_with_fewer_nulls_than_told_are_refused():
    schema = Schema((Attribute("x", "numeric", cuts=(1.0,)), Attribute("b", "nominal", (1, 2))), None, ("",))
    number = array_of(pa.float64(), 2, b"\x03", np.ones(2).tobytes(), null_count=1)
    byte = array_of(pa.uint8(), 2, b"\x03", b"\1\2", null_count=1)
    for name, column in (("x", number), ("b", byte)):
        with pytest.raises(InvalidBuffers, match="null_count"):
            encode(pa.RecordBatch.from_arrays([column], [name]), schema, is_trusted=False)


def test_nulls_may_hide_what_would_not_be_valid():
    schema = Schema((Attribute("x", "nominal", ("a", "b"), has_missing=True),), None, ("",))
    text = array_of(pa.string(), 2, b"\x01", integers(0, 1, 3), b"a\xff\xfe", null_count=1)
    buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(b"\x00\x7f")]
    index = pa.DictionaryArray.from_buffers(pa.dictionary(pa.int8(), pa.string()), 2, buffers, pa.array(["a"]), 1)
    for column in (text, index):
        batch = pa.RecordBatch.from_arrays([column], ["x"])
        batch.validate(full=True)
        assert encode(batch, schema, is_trusted=False).x.tolist() == [[1, 0]]


@pytest.mark.parametrize("kind", [*WHOLE_TYPES, pa.float32(), pa.float64()])
@pytest.mark.parametrize("n_cuts", [2, 60])
def test_numbers_with_nulls_are_coded_from_any_row_on(kind, n_cuts):
    """Nulls are looked up 64 rows at a time, and the bits of the first may stand anywhere in a byte; of several blocks of rows."""
    rng = np.random.default_rng(n_cuts)
    cuts = np.sort(rng.choice(np.arange(0.5, 99), n_cuts, replace=False))
    schema = Schema((Attribute("x", "numeric", cuts=tuple(cuts.tolist()), has_missing=True),), None, ("",))
    numbers, is_null = rng.integers(0, 100, 3000), rng.random(3000) < 0.3
    batch = pa.RecordBatch.from_arrays([pa.array(numbers, mask=is_null).cast(kind)], ["x"])
    codes = np.where(is_null, 0, 1 + np.searchsorted(cuts, numbers))
    for first in (0, 1, 7, 8, 63, 64, 65, 130):
        for n_rows in (0, 1, 63, 64, 65, 200, 3000):
            x = encode(batch.slice(first, n_rows), schema, is_trusted=False).x[0]
            np.testing.assert_array_equal(x, codes[first : first + n_rows])


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
def test_the_first_column_with_an_index_beyond_its_dictionary(kind):
    sound, beyond = dictionary_of(1, 0, 1, 0, arrow_type=kind), dictionary_of(0, 1, 0, 2, arrow_type=kind)
    numbers = pa.array([7, 8, 9, 10])
    batch, look = pa.RecordBatch.from_arrays([numbers, sound, beyond, beyond], list("abcd")), IndexCheck()
    assert look.unsound_column(batch) == 2
    assert look.unsound_column(batch.slice(0, 3)) == look.unsound_column(batch.slice(4)) == -1
    assert look.unsound_column(batch.slice(3)) == 2
    assert look.unsound_column(batch.select(["a", "b"])) == look.unsound_column(batch.select(["a"])) == -1
    if not pa.types.is_unsigned_integer(kind):
        below = dictionary_of(0, -1, arrow_type=kind)
        assert look.unsound_column(pa.RecordBatch.from_arrays([below], ["x"])) == 0


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32()])
def test_an_index_where_a_value_is_null_means_nothing(kind):
    coded = pa.dictionary(kind, pa.string())
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(integers(0, 99, 1, -5, kind=kind.to_pandas_dtype()))]
    column = pa.DictionaryArray.from_buffers(coded, 4, buffers, pa.array(["a", "b"]), 2)
    for values in (column, pa.array([None, None], coded)):
        assert IndexCheck().unsound_column(pa.RecordBatch.from_arrays([values], ["x"])) == -1


SPOILED_SCHEMA = Schema(
    (
        *(Attribute(n, "nominal", ("a", "b", "grün")) for n in ("word", "large", "view", "dictionary")),
        Attribute("number", "numeric", cuts=(1.0, 3.5), arrow_type="double"),
        Attribute("byte", "nominal", (1, 3)),
    ),
    None,
    ("",),
)


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(0, 255), st.integers(1, 8))
def test_a_spoiled_stream_is_refused_where_arrow_refuses_it_and_read_where_not(place, value, n_bytes):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SPOILED.schema) as writer:
        writer.write_batch(SPOILED)
    body = bytearray(sink.getvalue().to_pybytes())
    place %= len(body)
    body[place : place + n_bytes] = bytes([value]) * len(body[place : place + n_bytes])
    try:
        table = pa.ipc.open_stream(bytes(body)).read_all()
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return
    try:
        table.validate(full=True)
        names, columns = table.column_names, table.to_pydict()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        with pytest.raises((InvalidBuffers, SchemaError, pa.ArrowException)):
            encode(table, SPOILED_SCHEMA, is_trusted=False)
        return
    try:
        codes = encode(table, SPOILED_SCHEMA, is_trusted=False).x
    except (SchemaError, pa.ArrowException):
        return  # another type
    if len(set(names)) == len(names) == len(columns) and table.num_rows:
        assert codes.tolist() == codes_of(columns, SPOILED_SCHEMA)
