"""How kernels loop over ranges: what numba does, in a fifth of its instructions, which LLVM would have to remove.

Numba reckons with any step, and keeps ranges and what they yield in memory. Here a range is a value, and a step that is 1 or -1 is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from llvmlite.ir.instructions import InsertValue
from numba.core import cgutils, types
from numba.core.base import BaseContext as Target
from numba.core.imputils import Registry, builtin_registry
from numba.core.typing import Signature

START, STOP, STEP = range(3)  # of a range
PLACE, _, ITS_STEP, LEFT = range(4)  # of what loops over one: pointers to the next number, and to how many are left


def _range(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
    """A range, as a value."""
    kind = context.get_value_type(signature.return_type)
    zero, one = (ir.Constant(kind.elements[START], number) for number in (0, 1))
    start, stop, step = (zero, args[0], one) if len(args) == 1 else (*args, one)[:3]
    return _struct(builder, kind, [start, stop, step])


def _iterator(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
    """What loops over a range."""
    start, stop, step = (_member(builder, args[0], i) for i in (START, STOP, STEP))
    known = step.constant if isinstance(step, ir.Constant) else None
    if known not in (1, -1):
        return _by_numba("getiter", signature.args)(context, builder, signature, args)
    way = builder.sub(stop, start) if known == 1 else builder.sub(start, stop)
    none = ir.Constant(way.type, 0)
    left = builder.select(builder.icmp_signed(">", way, none), way, none)
    place, n_left = (cgutils.alloca_once_value(builder, value) for value in (start, left))
    return _struct(builder, context.get_value_type(signature.return_type), [place, stop, step, n_left])


def _next(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
    """The next number, and whether there is one."""
    place, step, n_left = (_member(builder, args[0], i) for i in (PLACE, ITS_STEP, LEFT))
    left, number = builder.load(n_left), builder.load(place)
    is_one = builder.icmp_signed(">", left, ir.Constant(left.type, 0))
    with builder.if_then(is_one):
        builder.store(builder.sub(left, ir.Constant(left.type, 1), flags=["nsw"]), n_left)
        builder.store(builder.add(number, step), place)
    return _struct(builder, context.get_value_type(signature.return_type), [number, is_one])


def _struct(builder: ir.IRBuilder, kind: ir.Type, members: Sequence[ir.Value]) -> ir.Value:
    value = ir.Constant(kind, ir.Undefined)
    for i, member in enumerate(members):
        value = builder.insert_value(value, member, i)
    return value


def _member(builder: ir.IRBuilder, struct: ir.Value, index: int) -> ir.Value:
    """A member of a struct: what was put in, where the struct has just been made."""
    made = struct
    while isinstance(made, InsertValue):
        if made.indices == [index]:
            return made.operands[1]
        made = made.operands[0]
    return builder.extract_value(struct, index)


@cache
def _by_numba(operation: str, kinds: tuple[types.Type, ...]) -> Callable[..., Any]:
    return next(how for how, what, arguments in builtin_registry.functions if (what, arguments) == (operation, kinds))


def _registry() -> Registry:
    made = Registry("fewpass loops")
    for number, of_range, of_iterator in (
        (types.int32, types.range_state32_type, types.range_iter32_type),
        (types.int64, types.range_state64_type, types.range_iter64_type),
        (types.uint64, types.unsigned_range_state64_type, types.unsigned_range_iter64_type),
    ):
        for n_given in (1, 2, 3):
            made.lower(range, *[number] * n_given)(_range)
        made.lower("getiter", of_range)(_iterator)
        made.lower("iternext", of_iterator)(_next)
    return made


registry = _registry()
