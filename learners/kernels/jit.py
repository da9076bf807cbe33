"""numba's options, in one place."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, event, types
from numba.core.base import BaseContext as Target
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.typing import Context, Signature
from numba.extending import intrinsic

from learners.kernels.cache import cache_folder, content_hash, discard_outdated, is_trusted
from learners.kernels.element_types import Intrinsic, is_row_of, is_whole, require

SUM_BYTES = hashlib.sha256().digest_size


class _CollectorPause(event.Listener):
    """Leaves garbage alone while numba compiles, under its one lock: looking for it takes a seventh of the time."""

    def __init__(self) -> None:
        self._was_enabled: list[bool] = []  # a compilation compiles what it calls

    def on_start(self, event: event.Event) -> None:
        self._was_enabled.append(gc.isenabled())
        gc.disable()

    def on_end(self, event: event.Event) -> None:
        if self._was_enabled.pop():
            gc.enable()


event.register("numba:compile", _CollectorPause())


class KernelCache(_Cache):
    """Compiled forms of one kernel on disk, one file for each signature and processor.

    Numba's own cache looks at the time of a function's file, not at the functions compiled into it; and two processes that
    compile at the same moment overwrite its index. Here the name of a file says all that it depends on.

    Parameters
    ----------
    function : callable
        As it was written.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        # Of two kernels that differ by what they close over, files would not know which is which.
        self._is_enabled = function.__closure__ is None

    @property
    def cache_path(self) -> str:
        """Where the files are."""
        version = f"py{sys.version_info.major}{sys.version_info.minor}-numba{numba.__version__}"
        return str(cache_folder() / version)

    def _path(self, key: tuple[Any, ...]) -> tuple[Path, str, str]:
        prefix = f"{self._function.__module__}.{self._function.__qualname__}-"
        current = f"{prefix}{content_hash(Path(self._function.__code__.co_filename))}-"
        return (
            Path(self.cache_path) / f"{current}{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}",
            prefix,
            current,
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for a signature; None if nothing was."""
        if not self._is_enabled:
            return None
        # All that machine code needs. Numba's own cache also loads what it knows of numpy, a third of a second: compiling does that.
        rtsys.initialize(target_context)
        key = (sig, target_context.codegen().magic_tuple())
        path = self._path(key)[0]
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        if not is_trusted(path.parent):
            return None
        checksum, content = stored[:SUM_BYTES], stored[SUM_BYTES:]
        if hashlib.sha256(content).digest() != checksum:  # a changed byte of machine code does anything
            return None
        try:
            stored_key, data = pickle.loads(content)
            return CompileResult._rebuild(target_context, *data) if stored_key == key else None
        except (ImportError, AttributeError):  # a release with other modules has compiled it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled; where nothing can be kept, the next process compiles again."""
        if (
            not self._is_enabled or data.lifted or data.library.has_dynamic_globals
        ):  # which hold addresses of this process
            return
        key = (sig, data.codegen.magic_tuple())
        path, prefix, current = self._path(key)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not is_trusted(path.parent):
                return
            # Without its listing of types, which is written for nobody.
            content = dumps((key, data._replace(type_annotation="")._reduce()))
            draft.write_bytes(hashlib.sha256(content).digest() + content)
            draft.replace(path)
            discard_outdated(path.parent, prefix, current)
        except OSError:
            draft.unlink(missing_ok=True)

    def enable(self) -> None:
        """Read and write from now on."""
        self._is_enabled = True

    def disable(self) -> None:
        """Neither read nor write."""
        self._is_enabled = False

    def flush(self) -> None:
        """Forget all forms of the kernel."""
        for path in Path(self.cache_path).glob(f"{self._function.__module__}.{self._function.__qualname__}-*"):
            path.unlink(missing_ok=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel: without the GIL, cached on disk, exact arithmetic (no fastmath: we need -inf and ordered sums)."""
    return _compiled(function)


def inner_kernel(function: Callable[..., Any]) -> Any:
    """A kernel that only kernels call. It has no wrapper for callers in Python, which takes a fifth of a compilation.

    A call from Python raises TypeError.
    """
    compiled = _compiled(function, no_cpython_wrapper=True)
    if hasattr(compiled, "_cache"):
        compiled.add_overload = lambda result: compiled.overloads.update({tuple(result.signature.args): result})
        compiled._compile_for_args = lambda *arguments, **named: _refuse(function.__name__)
    return compiled


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    # Nobody needs wrappers for callers in C, which take a seventh of a compilation.
    # Rewrites are of expressions of whole arrays: kernels have loops.
    compiled = numba.jit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_rewrites=True, **options)(function)
    if hasattr(compiled, "_cache"):  # not with NUMBA_DISABLE_JIT
        compiled._cache = KernelCache(function)
        # A call in a kernel is typed for whole numbers of any value: numba compiles for a counter's first value, too.
        of_call = compiled.get_call_template
        compiled.get_call_template = lambda args, kws: of_call([_without_value(kind) for kind in args], kws)
    return compiled


def _without_value(kind: types.Type) -> types.Type:
    return kind.literal_type if isinstance(kind, types.IntegerLiteral) else kind


def _refuse(name: str) -> None:
    raise TypeError(f"{name} is called by kernels only: make it a `kernel` to call it from Python.")


def load_registries() -> None:
    """Load what numba knows of numpy's functions, as the first kernel would."""
    import numba.np.arraymath  # noqa: F401


@contextmanager
def noticing_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once, if a kernel is compiled rather than found on disk: that takes seconds, and happens once on a machine."""

    class First(event.Listener):
        has_told = False

        def on_start(self, event: event.Event) -> None:
            if not self.has_told:
                self.has_told = True
                tell()

        def on_end(self, event: event.Event) -> None:
            pass

    with event.install_listener("numba:compile", First()):
        yield


@intrinsic
def popcount(typingctx: Context, word: types.Type) -> Intrinsic:
    """Number of bits set in a uint64."""
    require(is_whole(word, [64]), "popcount takes an integer of 64 bits", word)

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def match_bits(typingctx: Context, codes: types.Type, offset: types.Type, value: types.Type) -> Intrinsic:
    """Bits r = 0..63 of a uint64: whether codes[offset + r] == value, for a one-dimensional uint8 array of enough rows."""
    # The kernel loads bytes whatever the array holds: of uint16 codes it would match halves, and counts become negative.
    require(is_row_of(codes, types.uint8), "match_bits takes a contiguous one-dimensional array of uint8", codes)
    require(is_whole(offset), "match_bits takes an integer as offset", offset)
    require(value == types.uint8, "match_bits takes a uint8 as value", value)

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
def _byte_pointer(typingctx: Context, address: types.Type) -> Intrinsic:
    """The pointer of an address."""
    require(address == types.uint64, "bytes_at takes an address as a uint64", address)

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), codegen


@inner_kernel
def bytes_at(address: int, n: int) -> np.ndarray:
    """The n bytes from an address on, as an array; whoever calls keeps the memory alive."""
    return numba.carray(_byte_pointer(address), (n,), np.uint8)


@intrinsic
def load(typingctx: Context, address: types.Type, kind: types.NumberClass) -> Intrinsic:
    """The number of a type such as np.int32 at an address, aligned or not; whoever calls keeps the memory alive."""
    require(address == types.uint64, "load takes an address as a uint64", address)
    is_number = isinstance(kind, types.NumberClass) and isinstance(kind.dtype, types.Integer | types.Float)
    require(is_number, "load takes a type such as np.int32", kind)

    def codegen(context: Target, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]) -> ir.Value:
        value = builder.load(builder.inttoptr(args[0], context.get_value_type(kind.dtype).as_pointer()))
        value.align = 1
        return value

    return kind.dtype(types.uint64, kind), codegen
