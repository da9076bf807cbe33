"""What intrinsics say of types that they would read wrongly: a vector load takes two codes of 16 bits for four of 8."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir
from numba.core import types
from numba.core.base import BaseContext as Target
from numba.core.errors import TypingError
from numba.core.types.misc import unliteral
from numba.core.typing import Signature

# What numba types a call as, and how it makes machine code of it.
Intrinsic = tuple[Signature, Callable[[Target, ir.IRBuilder, Signature, Sequence[ir.Value]], ir.Value]]


def require(is_accepted: bool, accepts: str, *given: types.Type) -> None:
    """Refuse to compile an intrinsic for types that it would read wrongly."""
    if not is_accepted:
        raise TypingError(f"{accepts}, not {' and '.join(map(str, given))}")


def is_whole(kind: types.Type, bits: Sequence[int] = (8, 16, 32, 64)) -> bool:
    """Whether a type is an integer of one of these widths; a counter's first value is a literal."""
    return isinstance(kind, types.Integer) and unliteral(kind).bitwidth in bits


def is_row_of(kind: types.Type, *items: types.Type) -> bool:
    """Whether a type is a contiguous one-dimensional array of one of these items."""
    return isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C" and kind.dtype in items


def require_block(name: str, array: types.Type, slot: types.Type, item: types.Type) -> None:
    """Refuse an array that is not made of rows of vectors."""
    is_block = isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C" and array.dtype == item
    require(is_block, f"{name} takes a C-contiguous array (n, n_lanes) of {item}", array)
    require(is_whole(slot), f"{name} takes an integer as slot", slot)
