"""Looking up text: the same codes as a dictionary gives."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from learners.kernels.jit import kernel
from learners.schema import Attribute, Schema
from learners.schema.encoding.batches import joined, word_table
from learners.schema.encoding.encode import encode
from learners.schema.encoding.string_kernels import code_of_word, is_ascii

# Short and long ones that share their first eight, sixteen bytes; some of several bytes per letter.
WORDS = st.text(max_size=6) | st.text("ab", min_size=7, max_size=25) | st.text("aé\0", max_size=9)


@kernel
def looked_up(address, length, end, table, mask, more):
    return is_ascii(address, length, end), code_of_word(address, length, end, table, mask, more)


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
    words, first_slots, masks = joined([word_table(domain, 5) for domain in domains])
    for domain, slot, mask in zip(domains, first_slots.tolist(), masks.tolist(), strict=False):
        known = {word: 5 + number for number, word in enumerate(domain)}
        for word in [*others, *domain]:
            assert code_in(word, domain, slot, mask, words) == known.get(word, -1)


@given(
    st.lists(WORDS, min_size=1, max_size=9, unique=True),
    st.lists(st.none() | WORDS, min_size=1, max_size=30),
    st.booleans(),
)
def test_plain_and_dictionary_columns_have_the_same_codes(domain, words, has_missing):
    schema = Schema((Attribute("x", "nominal", tuple(sorted(domain)), has_missing=has_missing),), None, ("",))
    plain = pa.table({"x": pa.array(words, pa.string())})
    encoded = pa.table({"x": pa.array(words, pa.string()).dictionary_encode()})
    assert np.array_equal(encode(plain, schema).x, encode(encoded, schema).x)


def test_words_that_differ_in_any_byte_have_slots_of_their_own():
    for pattern in ("{}", "{}......", ".......{}", "value number {}", "{} is in front of a longer text", "{:>30}"):
        table = word_table([pattern.format(i) for i in range(500)], 0)
        taken = np.flatnonzero(table.slots[:, 0] >= 0)
        ends = np.flatnonzero(np.concatenate([[True], np.diff(taken) > 1, [True]]))
        assert taken.size == 500
        assert np.diff(ends).max() < 60, f"{pattern}: a long run of taken slots"
