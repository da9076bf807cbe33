"""How kernels read and write numbers of arrays: what numba does, in a quarter of its instructions, which LLVM would have to remove.

Numba lowers an index as if it might make a view of any array: it keeps the array's fields in memory, and asks for strides. Here the
fields are taken as they are. Whatever is not a number at a place of an array is left to numba.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.base import BaseContext as Target
from numba.core.imputils import Registry
from numba.core.types.containers import BaseTuple
from numba.core.typing import Signature

registry = Registry("fewpass")


@registry.lower(operator.getitem, types.Array, types.Integer)
@registry.lower(operator.getitem, types.Array, BaseTuple)
def read(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
    """The value of array[index]."""
    from numba.np import arrayobj  # loaded with the first compilation, not with kernels from disk

    array, index = signature.args
    if context.enable_boundscheck or not _is_place(array, index):
        by_numba = arrayobj.getitem_array_tuple if isinstance(index, BaseTuple) else arrayobj.getitem_arraynd_intp
        return by_numba(context, builder, signature, args)
    return arrayobj.load_item(context, builder, array, _pointer(context, builder, array, args[0], index, args[1]))


@registry.lower(operator.setitem, types.Array, types.Any, types.Any)
def write(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value | None:
    """The statement array[index] = value."""
    from numba.np import arrayobj

    array, index, given = signature.args
    if context.enable_boundscheck or not _is_place(array, index):
        return arrayobj.setitem_array(context, builder, signature, args)
    value = context.cast(builder, args[2], given, array.dtype)
    place = _pointer(context, builder, array, args[0], index, args[1])
    return arrayobj.store_item(context, builder, array, value, place)


def _is_place(array: types.Array, index: types.Type) -> bool:
    """Whether an index says one number of an array."""
    along = index.types if isinstance(index, BaseTuple) else (index,)
    return (
        array.layout in "CA"
        and len(along) == array.ndim
        and isinstance(array.dtype, types.Number | types.Boolean)
        and all(isinstance(kind, types.Integer) for kind in along)
    )


def _pointer(
    context: Target, builder: ir.IRBuilder, array: types.Array, fields: ir.Value, index: types.Type, places: ir.Value
) -> ir.Value:
    """Where a number of an array is; negative indices count from the end."""
    from numba.np import arrayobj

    names = context.data_model_manager[array]._fields
    data = builder.extract_value(fields, names.index("data"))
    if isinstance(index, BaseTuple):
        kinds, along = index.types, cgutils.unpack_tuple(builder, places, array.ndim)
    else:
        kinds, along = (index,), (places,)
    sizes = [builder.extract_value(fields, [names.index("shape"), axis]) for axis in range(array.ndim)]
    along = [
        arrayobj.fix_integer_index(context, builder, kind, place, size)
        for kind, place, size in zip(kinds, along, sizes, strict=True)
    ]
    offset = along[0]
    if array.layout == "C":
        for place, size in zip(along[1:], sizes[1:], strict=True):
            offset = builder.add(builder.mul(offset, size), place)
        return builder.gep(data, [offset])
    strides = [builder.extract_value(fields, [names.index("strides"), axis]) for axis in range(array.ndim)]
    steps = [builder.mul(stride, place) for stride, place in zip(strides, along, strict=True)]
    for step in steps[1:]:
        steps[0] = builder.add(steps[0], step)
    return cgutils.pointer_add(builder, data, steps[0])
