"""Sixteen numbers, one for each row of a block, that kernels keep in registers: the only other module that imports numba.

A loop over sixteen rows of an array costs more than its arithmetic: the compiler checks whether arrays overlap, counts
references to the slices, and reads and writes every sum again. `Lanes` are one value to it. All operations are the exact
ones, in the order in which they are written, so a lane has the same bits as the plain arithmetic of its row.
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

N_LANES = 16

Codegen = Callable[[Target, ir.IRBuilder, Signature, Sequence[ir.Value]], ir.Value]
Intrinsic = tuple[Signature, Codegen]

_DOUBLES = ir.VectorType(ir.DoubleType(), N_LANES)
_WHOLES = ir.VectorType(ir.IntType(64), N_LANES)


class LanesType(types.Type):
    """Sixteen float64."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: object, kind: types.Type) -> None:
        super().__init__(manager, kind, _DOUBLES)


def _splat(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    kind = ir.VectorType(number.type, N_LANES)
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    first = ir.Constant(ir.VectorType(ir.IntType(32), N_LANES), [0] * N_LANES)
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), first)


def _all(number: float) -> ir.Constant:
    return ir.Constant(_DOUBLES, [number] * N_LANES)


def _arithmetic(symbol: Callable[..., object], instruction: str) -> None:
    """Make + - * / of lanes, and of a number and lanes."""
    cases = [signature(lanes, lanes, lanes), signature(lanes, types.float64, lanes)]
    infer_global(symbol)(type("_OfLanes", (ConcreteTemplate,), {"cases": cases}))

    def of_lanes(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        return getattr(builder, instruction)(*args)

    def of_number(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        return getattr(builder, instruction)(_splat(builder, args[0]), args[1])

    lower_builtin(symbol, lanes, lanes)(of_lanes)
    lower_builtin(symbol, types.float64, lanes)(of_number)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")


def _address(
    context: Target, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, slot: ir.Value, of: ir.Type
) -> ir.Value:
    """Pointer to the lanes in a row of a C-contiguous array whose rows have N_LANES items."""
    data = cgutils.create_struct_proxy(kind)(context, builder, array).data
    first = builder.mul(slot, ir.Constant(slot.type, N_LANES))
    return builder.bitcast(builder.gep(data, [first]), of.as_pointer())


@intrinsic
def item(typingctx: Context, array: types.Array, index: types.Type) -> Intrinsic:
    """array[index] of a contiguous one-dimensional array, for an index that is never negative."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        data = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0]).data
        return builder.load(builder.gep(data, [args[1]]))

    return array.dtype(array, types.int64), codegen


@intrinsic
def lanes_at(typingctx: Context, array: types.Array, slot: types.Type) -> Intrinsic:
    """array[slot] of a C-contiguous float64 array (n, N_LANES)."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        value = builder.load(_address(context, builder, sig.args[0], args[0], args[1], _DOUBLES))
        value.align = 8
        return value

    return lanes(array, types.int64), codegen


@intrinsic
def put_lanes(typingctx: Context, array: types.Array, slot: types.Type, given: types.Type) -> Intrinsic:
    """Write array[slot] of a C-contiguous float64 array (n, N_LANES)."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        stored = builder.store(args[2], _address(context, builder, sig.args[0], args[0], args[1], _DOUBLES))
        stored.align = 8
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic
def codes_at(typingctx: Context, x: types.Array, first: types.Type, n: types.Type) -> Intrinsic:
    """Sixteen items of a contiguous array from the first-th on, of which what is not from 0 to n - 1 becomes n.

    The array is uint8 or float64, `first` an index into its items, row after row; n is a float64.
    """
    is_uint8 = x.dtype == types.uint8

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        data = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0]).data
        kind = ir.VectorType(ir.IntType(8), N_LANES) if is_uint8 else _DOUBLES
        found = builder.load(builder.bitcast(builder.gep(data, [args[1]]), kind.as_pointer()))
        found.align = 1 if is_uint8 else 8
        code = builder.uitofp(found, _DOUBLES) if is_uint8 else found
        n_lanes = _splat(builder, args[2])
        # Not-a-number fails both comparisons.
        is_known = builder.and_(builder.fcmp_ordered(">=", code, _all(0.0)), builder.fcmp_ordered("<", code, n_lanes))
        return builder.select(is_known, code, n_lanes)

    return lanes(x, types.int64, types.float64), codegen


@intrinsic
def one_where(typingctx: Context, given: types.Type, a: types.Type, b: types.Type) -> Intrinsic:
    """One in the lanes that are a or b, else zero."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        is_a = builder.fcmp_ordered("==", args[0], _splat(builder, args[1]))
        is_b = builder.fcmp_ordered("==", args[0], _splat(builder, args[2]))
        return builder.select(builder.or_(is_a, is_b), _all(1.0), _all(0.0))

    return lanes(lanes, types.float64, types.float64), codegen


@intrinsic
def put_whole(typingctx: Context, array: types.Array, slot: types.Type, given: types.Type) -> Intrinsic:
    """Write lanes of whole numbers as array[slot] of a C-contiguous int64 array (n, N_LANES)."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        whole = builder.fptosi(args[2], _WHOLES)
        stored = builder.store(whole, _address(context, builder, sig.args[0], args[0], args[1], _WHOLES))
        stored.align = 8
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes), codegen


@intrinsic
def whole_at(typingctx: Context, array: types.Array, slot: types.Type) -> Intrinsic:
    """array[slot] of a C-contiguous int64 array (n, N_LANES), as float64."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        whole = builder.load(_address(context, builder, sig.args[0], args[0], args[1], _WHOLES))
        whole.align = 8
        return builder.sitofp(whole, _DOUBLES)

    return lanes(array, types.int64), codegen


@intrinsic
def at_least(typingctx: Context, given: types.Type, least: types.Type) -> Intrinsic:
    """The lanes, zero where they are below a number or not numbers."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        is_enough = builder.fcmp_ordered(">=", args[0], _splat(builder, args[1]))
        return builder.select(is_enough, args[0], _all(0.0))

    return lanes(lanes, types.float64), codegen


@intrinsic
def ratio_or_zero(typingctx: Context, above: types.Type, below: types.Type) -> Intrinsic:
    """What is above by what is below, zero where above is not positive."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        is_positive = builder.fcmp_ordered(">", args[0], _all(0.0))
        return builder.select(is_positive, builder.fdiv(*args), _all(0.0))

    return lanes(lanes, lanes), codegen


@intrinsic
def where_equal(
    typingctx: Context, given: types.Type, a: types.Type, number: types.Type, other: types.Type
) -> Intrinsic:
    """A number in the lanes that are a, elsewhere those of others."""

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        is_a = builder.fcmp_ordered("==", args[0], _splat(builder, args[1]))
        return builder.select(is_a, _splat(builder, args[2]), args[3])

    return lanes(lanes, types.float64, types.float64, lanes), codegen


@intrinsic
def sum_of_whole(typingctx: Context, given: types.Type) -> Intrinsic:
    """Sum of the lanes in units of 2^-32, each rounded to the nearest, as an int64. The lanes are from 0 to 2^19.

    Above 1.5 · 2^20 doubles are 2^-32 apart: adding that rounds, and the bits of the sum are whole numbers.
    """
    magic = 1.5 * 2.0**20

    def codegen(context: Target, builder: ir.IRBuilder, sig: Signature, args: Sequence[ir.Value]) -> ir.Value:
        bits = builder.bitcast(builder.fadd(args[0], _all(magic)), _WHOLES)
        name = f"llvm.vector.reduce.add.v{N_LANES}i64"
        reduce = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(64), [_WHOLES]), name)
        excess = N_LANES * int.from_bytes(struct.pack("<d", magic), "little") % 2**64
        return builder.sub(builder.call(reduce, [bits]), ir.Constant(ir.IntType(64), excess))

    return types.int64(lanes), codegen
