"""SIMD type of sixteen numbers, one per row of a block, that kernels keep in registers.

A loop over sixteen rows of an array costs more than its arithmetic: the compiler checks arrays for overlap,
counts references to the slices, and loads and stores every sum. `Lanes` are a single value for it. All
operations are exact and in program order, so a lane has the same bits as scalar arithmetic on its row.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.base import BaseContext as Target
from numba.core.typing import Context, Signature
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from learners.kernels.intrinsics import (
    Intrinsic,
    is_contiguous_array_type,
    is_integer_type,
    require_lane_array_types,
    require_types,
)

N_LANES = 16

_DOUBLES = ir.VectorType(ir.DoubleType(), N_LANES)
_BITS = ir.VectorType(ir.IntType(1), N_LANES)
_WHOLES = ir.VectorType(ir.IntType(64), N_LANES)


class LanesType(types.Type):
    """Numba type of sixteen float64."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


class MarksType(types.Type):
    """Numba type of sixteen booleans, the result of comparing lanes."""

    def __init__(self) -> None:
        super().__init__(name="Marks")


lanes, marks = LanesType(), MarksType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: object, kind: types.Type) -> None:
        super().__init__(manager, kind, _DOUBLES)


@register_model(MarksType)
class _MarksModel(models.PrimitiveModel):
    def __init__(self, manager: object, kind: types.Type) -> None:
        super().__init__(manager, kind, _BITS)


def _splat(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    kind = ir.VectorType(number.type, N_LANES)
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    first = ir.Constant(ir.VectorType(ir.IntType(32), N_LANES), [0] * N_LANES)
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), first)


def _all(number: float) -> ir.Constant:
    return ir.Constant(_DOUBLES, [number] * N_LANES)


def _define(symbol: Callable[..., object], result: types.Type, make: Callable[..., ir.Value]) -> None:
    """Define an operator on lanes with lanes, and on lanes with a number on either side."""
    sides = [(lanes, lanes), (types.float64, lanes), (lanes, types.float64)]
    cases = [signature(result, *kinds) for kinds in sides]
    infer_global(symbol)(type("_OfLanes", (ConcreteTemplate,), {"cases": cases}))

    def lower(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        both = (arg if kind == lanes else _splat(builder, arg) for arg, kind in zip(args, sig.args, strict=True))
        return make(builder, *both)

    for kinds in sides:
        lower_builtin(symbol, *kinds)(lower)


def _arithmetic(symbol: Callable[..., object], instruction: str) -> None:
    """Define an arithmetic operator (+ - * /) on lanes and numbers."""
    _define(symbol, lanes, lambda builder, a, b: getattr(builder, instruction)(a, b))


def _comparison(symbol: Callable[..., object], sign: str) -> None:
    """Define a comparison of lanes and numbers; it is false for NaN."""
    _define(symbol, marks, lambda builder, a, b: builder.fcmp_ordered(sign, a, b))


_arithmetic(operator.add, "fadd")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")
_comparison(operator.ge, ">=")
_comparison(operator.gt, ">")
_comparison(operator.eq, "==")


_OfMarks = type("_OfMarks", (ConcreteTemplate,), {"cases": [signature(marks, marks, marks)]})
infer_global(operator.or_)(_OfMarks)
lower_builtin(operator.or_, marks, marks)(lambda context, builder, sig, args: builder.or_(*args))


def _address(
    context: Target, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, slot: ir.Value, of: ir.Type
) -> ir.Value:
    """Return a pointer to the lanes in a row of a C-contiguous array whose rows have N_LANES items."""
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
    first = builder.mul(slot, ir.Constant(slot.type, N_LANES))
    return builder.bitcast(builder.gep(data, [first]), of.as_pointer())


LANES_OR_NUMBER = (lanes, types.float64)


def _require_lanes(name: str, *given: types.Type) -> None:
    require_types(all(kind == lanes for kind in given), f"{name} takes lanes", *given)


@intrinsic
def unchecked_array_item(typingctx: Context, array: types.Array, index: types.Type) -> Intrinsic:
    """Return array[index] of a contiguous one-dimensional array, for an index that is never negative."""
    is_row = isinstance(array, types.Array) and isinstance(array.dtype, types.Number | types.Boolean)
    require_types(
        is_row and is_contiguous_array_type(array, array.dtype),
        "unchecked_array_item takes a contiguous one-dimensional array of numbers",
        array,
    )
    require_types(is_integer_type(index), "unchecked_array_item takes an integer as index", index)

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        data = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.int64), codegen


@intrinsic
def load_lanes(typingctx: Context, array: types.Array, slot: types.Type) -> Intrinsic:
    """Load array[slot] of a C-contiguous float64 array (n, N_LANES)."""
    require_lane_array_types("load_lanes", array, slot, types.float64)

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        value = builder.load(_address(context, builder, sig.args[0], args[0], args[1], _DOUBLES))
        value.align = 8
        return value

    return lanes(array, types.int64), codegen


@intrinsic
def store_lanes(typingctx: Context, array: types.Array, slot: types.Type, given: types.Type) -> Intrinsic:
    """Store lanes to array[slot] of a C-contiguous float64 array (n, N_LANES)."""
    require_lane_array_types("store_lanes", array, slot, types.float64)
    _require_lanes("store_lanes", given)

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        stored = builder.store(args[2], _address(context, builder, sig.args[0], args[0], args[1], _DOUBLES))
        stored.align = 8
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic
def load_code_lanes(typingctx: Context, x: types.Array, first: types.Type, n: types.Type) -> Intrinsic:
    """Load sixteen items of a contiguous float64 array starting at `first`; values outside 0 to n - 1 become n.

    `first` is an index into its items, row after row; n is a float64.
    """
    is_codes = isinstance(x, types.Array) and x.layout == "C" and x.dtype == types.float64
    require_types(is_codes, "load_code_lanes takes a C-contiguous array of float64", x)
    require_types(is_integer_type(first), "load_code_lanes takes an integer as first", first)
    require_types(n == types.float64, "load_code_lanes takes a float64 as n", n)

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        data = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0]).data
        code = builder.load(builder.bitcast(builder.gep(data, [args[1]]), _DOUBLES.as_pointer()))
        code.align = 8
        n_lanes = _splat(builder, args[2])
        # Not-a-number fails both comparisons.
        is_known = builder.and_(builder.fcmp_ordered(">=", code, _all(0.0)), builder.fcmp_ordered("<", code, n_lanes))
        return builder.select(is_known, code, n_lanes)

    return lanes(x, types.int64, types.float64), codegen


@intrinsic
def store_integer_lanes(typingctx: Context, array: types.Array, slot: types.Type, given: types.Type) -> Intrinsic:
    """Store lanes of integers to array[slot] of a C-contiguous int64 array (n, N_LANES)."""
    require_lane_array_types("store_integer_lanes", array, slot, types.int64)
    _require_lanes("store_integer_lanes", given)

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        whole = builder.fptosi(args[2], _WHOLES)
        stored = builder.store(whole, _address(context, builder, sig.args[0], args[0], args[1], _WHOLES))
        stored.align = 8
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic
def load_integer_lanes(typingctx: Context, array: types.Array, slot: types.Type) -> Intrinsic:
    """Load array[slot] of a C-contiguous int64 array (n, N_LANES), as float64."""
    require_lane_array_types("load_integer_lanes", array, slot, types.int64)

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        whole = builder.load(_address(context, builder, sig.args[0], args[0], args[1], _WHOLES))
        whole.align = 8
        return builder.sitofp(whole, _DOUBLES)

    return lanes(array, types.int64), codegen


@intrinsic
def fixed_point_lane_sum(typingctx: Context, given: types.Type) -> Intrinsic:
    """Sum the lanes in units of 2^-32, each rounded to the nearest, as an int64. Lanes must be from 0 to 2^19.

    Above 1.5 · 2^20 doubles are 2^-32 apart: adding that constant rounds, and the bits of the sum are integers.
    """
    _require_lanes("fixed_point_lane_sum", given)
    magic = 1.5 * 2.0**20

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        bits = builder.bitcast(builder.fadd(args[0], _all(magic)), _WHOLES)
        name = f"llvm.vector.reduce.add.v{N_LANES}i64"
        reduce = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(64), [_WHOLES]), name)
        excess = N_LANES * int.from_bytes(struct.pack("<d", magic), "little") % 2**64
        return builder.sub(builder.call(reduce, [bits]), ir.Constant(ir.IntType(64), excess))

    return types.int64(lanes), codegen


@intrinsic
def select_lanes(typingctx: Context, given: types.Type, a: types.Type, b: types.Type) -> Intrinsic:
    """Select lanes or a number where marks are set, and others elsewhere."""
    is_known = given == marks and a in LANES_OR_NUMBER and b in LANES_OR_NUMBER
    require_types(is_known, "select_lanes takes marks, and lanes or float64", given, a, b)

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        kinds = sig.args[1:]
        both = (arg if kind == lanes else _splat(builder, arg) for arg, kind in zip(args[1:], kinds, strict=True))
        return builder.select(args[0], *both)

    return lanes(given, a, b), codegen
