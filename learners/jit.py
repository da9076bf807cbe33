"""numba's options, in one place: the only module that imports numba."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, event, types
from numba.extending import intrinsic

# LLVM limits itself to 256-bit registers by default; popcounts run 1.4 times faster on whole 512-bit ones.
# Somebody who bakes a cache for many machines sets NUMBA_CPU_NAME=generic, and then we do not interfere.
if "NUMBA_CPU_NAME" not in os.environ and "NUMBA_CPU_FEATURES" not in os.environ:
    numba.config.CPU_NAME = llvm.get_host_cpu_name()
    numba.config.CPU_FEATURES = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"


def _stamp_of_kernels() -> str:
    """Changes when the source of any kernel does."""
    sources = [Path(__file__), *sorted(Path(__file__).parent.rglob("*kernels.py"))]
    stats = [(source.name, source.stat()) for source in sources]
    return repr([(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats])


STAMP = _stamp_of_kernels()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel: without the GIL, cached on disk, exact arithmetic (no fastmath: we need -inf and ordered sums)."""
    compiled = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    # Numba looks whether the file of a function has changed, but not those of the functions compiled into it: a kernel
    # that calls another one would go on with what that was before an update.
    if hasattr(compiled, "_cache"):  # not with NUMBA_DISABLE_JIT
        compiled._cache._cache_file._source_stamp = STAMP
    return compiled


@contextmanager
def noticing_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once, if a kernel is compiled rather than found on disk: that takes seconds, and happens once on a machine."""

    class First(event.Listener):
        has_told = False

        def on_start(self, event: Any) -> None:
            if not self.has_told:
                self.has_told = True
                tell()

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", First()):
        yield


@intrinsic
def popcount(typingctx: Any, word: Any) -> Any:
    """Number of bits set in a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def match_bits(typingctx: Any, codes: Any, offset: Any, value: Any) -> Any:
    """Bits r = 0..63 of a uint64: whether codes[offset + r] == value, for a one-dimensional uint8 array of enough rows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
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
def _byte_pointer(typingctx: Any, address: Any) -> Any:
    """The pointer of an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), codegen


@numba.njit(nogil=True, cache=True)
def bytes_at(address: Any, n: Any) -> Any:
    """The n bytes from an address on, as an array; whoever calls keeps the memory alive."""
    return numba.carray(_byte_pointer(address), (n,), np.uint8)


@intrinsic
def float32_of_bits(typingctx: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def load(typingctx: Any, address: Any, kind: Any) -> Any:
    """The number of a type such as np.int32 at an address, aligned or not; whoever calls keeps the memory alive."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], context.get_value_type(kind.dtype).as_pointer()))
        value.align = 1
        return value

    return kind.dtype(types.uint64, kind), codegen
