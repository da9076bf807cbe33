"""What depends on an element type refuses others when it is compiled: read as bytes, uint16 codes give negative counts."""

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from learners.kernels import intrinsics, simd
from learners.kernels.jit import kernel

CODES, WIDE, NUMBERS = np.zeros(64, np.uint8), np.zeros(64, np.uint16), np.zeros(64)
SINGLES, BLOCK, WHOLE = np.zeros(64, np.float32), np.zeros((4, 16)), np.zeros((4, 16), np.int64)
ADDRESS, BYTE = np.uint64(0), np.uint8(1)
# For each intrinsic the arguments that it takes, and those that it refuses. "L" stands for simd, "M" for marks.
ARGUMENTS = {
    "popcount": [(np.uint64(1),), (np.uint32(1),), (1.0,)],
    "equal_bytes_bitmask": [(CODES, 0, BYTE), (WIDE, 0, BYTE), (CODES[::2], 0, BYTE), (CODES, 0.0, BYTE), (CODES, 0, WIDE[0])],
    "add_four": [(NUMBERS, 0, SINGLES, 0), (NUMBERS, 0, NUMBERS, 0), (SINGLES, 0, SINGLES, 0), (NUMBERS[::2], 0, SINGLES, 0), (NUMBERS, 0.0, SINGLES, 0)],
    "prefetch": [(SINGLES, -3, 5), (NUMBERS, 0, 1), (SINGLES[::2], 0, 1), (SINGLES, 0.0, 1), (SINGLES, 0, 1.0)],
    "bytes_at_address": [None, (0, 1), (0.0, 1)],
    "unchecked_array_item": [(NUMBERS, 0), (BLOCK, 0), (NUMBERS[::2], 0), (NUMBERS, 0.0)],
    "load_lanes": [(BLOCK, 0), (WHOLE, 0), (BLOCK.T, 0), (NUMBERS, 0), (BLOCK, 0.0)],
    "store_lanes": [(BLOCK, 0, "L"), (WHOLE, 0, "L"), (BLOCK.T, 0, "L"), (BLOCK, 0, 1.0)],
    "load_code_lanes": [(NUMBERS, 0, 2.0), (CODES, 0, 2.0), (SINGLES, 0, 2.0), (NUMBERS[::2], 0, 2.0), (NUMBERS, 0, 2)],
    "store_integer_lanes": [(WHOLE, 0, "L"), (BLOCK, 0, "L"), (WHOLE.T, 0, "L"), (WHOLE, 0, 1.0)],
    "load_integer_lanes": [(WHOLE, 0), (BLOCK, 0), (WHOLE.T, 0)],
    "fixed_point_lane_sum": [("L",), (1.0,), ("M",)],
    "select_lanes": [("M", "L", 0.0), (1, "L", 0.0), ("L", "L", 0.0), ("M", "L", 0)],
}  # fmt: skip
OF_LANES = {"L": "load_lanes(block, 0)", "M": "(load_lanes(block, 0) > 0.0)"}


def called(name, arguments):
    """A kernel that calls an intrinsic; what it answers stays in it, as Python has no lanes."""
    given = [OF_LANES.get(each, f"g{i}") if isinstance(each, str) else f"g{i}" for i, each in enumerate(arguments)]
    names = ", ".join(["block", *(f"g{i}" for i in range(len(arguments)))])
    known = {**vars(simd), **vars(intrinsics)}
    exec(f"def calling({names}):\n    {name}({', '.join(given)})\n", known)
    numba.njit(known["calling"])(BLOCK, *(0 if isinstance(each, str) else each for each in arguments))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_intrinsic_compiles_for_its_types_and_refuses_others(name):
    taken, *refused = ARGUMENTS[name]
    if taken is not None:  # an address is of the test's own choosing
        called(name, taken)
    for arguments in refused:
        with pytest.raises(TypingError, match=f"{name} takes"):
            called(name, arguments)


@kernel
def loaded(address):
    return intrinsics.load_number(address, np.uint32)


@kernel
def loaded_of_nothing(address):
    return intrinsics.load_number(address, 4)


def test_load_takes_an_address_and_a_type_of_numbers():
    numbers = np.array([7, 8], np.uint32)
    assert loaded(np.uint64(numbers.ctypes.data)) == 7
    for refusing, address in ((loaded, 1), (loaded, 1.0), (loaded_of_nothing, ADDRESS)):
        with pytest.raises(TypingError, match="load_number takes"):
            refusing(address)


def test_every_intrinsic_is_tested():
    members = vars(intrinsics) | vars(simd)
    found = {name for name, each in members.items() if type(each).__name__ == "_Intrinsic"}
    assert found - {"_byte_pointer", "load_number"} == ARGUMENTS.keys() - {"bytes_at_address"}


@kernel
def added(sums, place, terms, first):
    intrinsics.add_four(sums, place, terms, first)


def test_four_terms_are_added_where_they_belong_and_nowhere_else():
    random = np.random.default_rng(0)
    before, terms = random.normal(size=11), random.normal(size=9).astype(np.float32)
    sums = before.copy()
    added(sums, 3, terms, 5)
    before[3:7] += terms[5:9]
    assert np.array_equal(sums, before)
