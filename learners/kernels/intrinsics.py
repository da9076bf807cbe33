"""Numba intrinsics for bits and for bytes at an address; each refuses types that it would misread.

A vector load takes two codes of 16 bits for four of 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.base import BaseContext as Target
from numba.core.errors import TypingError
from numba.core.types.misc import unliteral
from numba.core.typing import Context, Signature
from numba.extending import intrinsic

from learners.kernels.jit import inner_kernel

# What numba types a call as, and how it makes machine code of it.
Intrinsic = tuple[Signature, Callable[[Target, ir.IRBuilder, Signature, Sequence[ir.Value]], ir.Value]]


def require_types(is_accepted: bool, accepts: str, *given: types.Type) -> None:
    """Refuse to compile an intrinsic for types that it would misread."""
    if not is_accepted:
        raise TypingError(f"{accepts}, not {' and '.join(map(str, given))}")


def is_integer_type(kind: types.Type, bits: Sequence[int] = (8, 16, 32, 64)) -> bool:
    """Return whether a type is an integer of one of these widths, including literals."""
    return isinstance(kind, types.Integer) and unliteral(kind).bitwidth in bits


def is_contiguous_array_type(kind: types.Type, *items: types.Type) -> bool:
    """Return whether a type is a contiguous one-dimensional array of one of these items."""
    return isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C" and kind.dtype in items


def require_lane_array_types(name: str, array: types.Type, slot: types.Type, item: types.Type) -> None:
    """Refuse an array whose rows are not vectors of lanes."""
    is_block = isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C" and array.dtype == item
    require_types(is_block, f"{name} takes a C-contiguous array (n, n_lanes) of {item}", array)
    require_types(is_integer_type(slot), f"{name} takes an integer as slot", slot)


@intrinsic
def popcount(typingctx: Context, word: types.Type) -> Intrinsic:
    """Return the number of set bits in a uint64."""
    require_types(is_integer_type(word, [64]), "popcount takes an integer of 64 bits", word)

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def equal_bytes_bitmask(typingctx: Context, codes: types.Type, offset: types.Type, value: types.Type) -> Intrinsic:
    """Return a uint64 whose bit r = 0..63 is set if codes[offset + r] == value, for a one-dimensional uint8 array of
    enough rows.
    """
    # The kernel loads bytes whatever the array holds: of uint16 codes it would match halves, and counts become negative.
    require_types(
        is_contiguous_array_type(codes, types.uint8),
        "equal_bytes_bitmask takes a contiguous one-dimensional array of uint8",
        codes,
    )
    require_types(is_integer_type(offset), "equal_bytes_bitmask takes an integer as offset", offset)
    require_types(value == types.uint8, "equal_bytes_bitmask takes a uint8 as value", value)

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0])
        lanes = ir.VectorType(ir.IntType(8), 64)
        address = builder.gep(array.data, [args[1]])
        block = builder.load(builder.bitcast(address, lanes.as_pointer()))
        block.align = 1
        single = builder.insert_element(ir.Constant(lanes, ir.Undefined), args[2], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        splat = builder.shuffle_vector(single, ir.Constant(lanes, ir.Undefined), zeros)
        return builder.bitcast(builder.icmp_unsigned("==", block, splat), ir.IntType(64))

    return types.uint64(codes, types.int64, types.uint8), codegen


@intrinsic
def add_four(
    typingctx: Context, sums: types.Type, place: types.Type, terms: types.Type, first: types.Type
) -> Intrinsic:
    """Add terms[first + k] to sums[place + k] for k = 0..3, of one-dimensional arrays float64 and float32 of enough elements.

    The compiler adds four classes one by one: 7.8 ns for a cell of a table, against 3 with vectors.
    """
    require_types(
        is_contiguous_array_type(sums, types.float64) and is_contiguous_array_type(terms, types.float32),
        "add_four takes contiguous one-dimensional arrays of float64 and float32",
        sums,
        terms,
    )
    require_types(
        is_integer_type(place) and is_integer_type(first), "add_four takes integers as first elements", place, first
    )

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        loaded = []
        for array, at, item in ((0, 1, ir.DoubleType()), (2, 3, ir.FloatType())):
            start = cgutils.create_struct_proxy(signature.args[array])(context, builder, args[array]).data
            pointer = builder.bitcast(builder.gep(start, [args[at]]), ir.VectorType(item, 4).as_pointer())
            loaded.append((pointer, builder.load(pointer)))
            loaded[-1][1].align = 8 if array == 0 else 4
        (pointer, before), (_, own) = loaded
        widened = builder.fpext(own, ir.VectorType(ir.DoubleType(), 4))
        builder.store(builder.fadd(before, widened), pointer).align = 8
        return context.get_dummy_value()

    return types.void(sums, types.int64, terms, types.int64), codegen


@intrinsic
def prefetch(typingctx: Context, terms: types.Type, first: types.Type, n: types.Type) -> Intrinsic:
    """Ask for the memory of terms[first] and terms[first + n - 1] of a one-dimensional array of float32; any place will do.

    Of few numbers each, from places far apart, rows are added in half the time if those to come are asked for.
    """
    require_types(
        is_contiguous_array_type(terms, types.float32),
        "prefetch takes a contiguous one-dimensional array of float32",
        terms,
    )
    require_types(
        is_integer_type(first) and is_integer_type(n), "prefetch takes integers as place and number", first, n
    )

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        start = cgutils.create_struct_proxy(signature.args[0])(context, builder, args[0]).data
        byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        last = builder.sub(builder.add(args[1], args[2]), ir.IntType(64)(1))
        for place in (args[1], last):
            address = builder.bitcast(builder.gep(start, [place]), byte)
            builder.call(function, [address, whole(0), whole(3), whole(1)])  # to be read, kept in every cache
        return context.get_dummy_value()

    return types.void(terms, types.int64, types.int64), codegen


@intrinsic
def _byte_pointer(typingctx: Context, address: types.Type) -> Intrinsic:
    """Convert an address to a pointer."""
    require_types(address == types.uint64, "bytes_at_address takes an address as a uint64", address)

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), codegen


@inner_kernel
def bytes_at_address(address: int, n: int) -> np.ndarray:
    """Return the n bytes at an address as an array; the caller keeps the memory alive."""
    return numba.carray(_byte_pointer(address), (n,), np.uint8)


@intrinsic
def load_number(typingctx: Context, address: types.Type, kind: types.NumberClass) -> Intrinsic:
    """Load a number of a type such as np.int32 from an address, aligned or not; the caller keeps the memory alive."""
    require_types(address == types.uint64, "load_number takes an address as a uint64", address)
    is_number = isinstance(kind, types.NumberClass) and isinstance(kind.dtype, types.Integer | types.Float)
    require_types(is_number, "load_number takes a type such as np.int32", kind)

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        value = builder.load(builder.inttoptr(args[0], context.get_value_type(kind.dtype).as_pointer()))
        value.align = 1
        return value

    return kind.dtype(types.uint64, kind), codegen
