"""Numba options for all kernels, and the cache of compiled kernels."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core import event, types
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from learners.kernels.cache import (
    delete_outdated_kernels,
    is_trusted_cache_folder,
    kernel_cache_folder,
    kernel_source_hash,
)

SUM_BYTES = hashlib.sha256().digest_size


class _CollectorPause(event.Listener):
    """Pauses garbage collection while numba compiles, which saves a seventh of the time."""

    def __init__(self) -> None:
        self._was_enabled: list[bool] = []  # a compilation compiles what it calls

    def on_start(self, event: event.Event) -> None:
        self._was_enabled.append(gc.isenabled())
        gc.disable()

    def on_end(self, event: event.Event) -> None:
        if self._was_enabled.pop():
            gc.enable()


event.register("numba:compile", _CollectorPause())


class KernelCache:
    """Compiled versions of one kernel on disk, one file per signature and processor.

    Numba's own cache checks the modification time of a function's file, but not the functions compiled into it;
    and two processes that compile at the same moment overwrite its index. Here the file name covers all
    dependencies.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._prefix, self._file = (
            f"{function.__module__}.{function.__qualname__}-",
            Path(function.__code__.co_filename),
        )

    @property
    def cache_path(self) -> str:
        """Folder of the files."""
        version = f"py{sys.version_info.major}{sys.version_info.minor}-numba{numba.__version__}"
        return str(kernel_cache_folder() / version)

    @property
    def current(self) -> str:
        """File name prefix of the kernel's current version."""
        return f"{self._prefix}{kernel_source_hash(self._file)}-"

    def _path(self, key: tuple[Any, ...]) -> Path:
        return Path(self.cache_path) / f"{self.current}{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code for a signature; None if not cached."""
        # All that machine code needs. Numba's own cache also loads what it knows of numpy, a third of a second: compiling does that.
        rtsys.initialize(target_context)
        key = (sig, target_context.codegen().magic_tuple())
        path = self._path(key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        content = stored[SUM_BYTES:]
        # A changed byte of machine code could do anything.
        if not is_trusted_cache_folder(path.parent) or hashlib.sha256(content).digest() != stored[:SUM_BYTES]:
            return None
        try:
            stored_key, data = pickle.loads(content)
            return CompileResult._rebuild(target_context, *data) if stored_key == key else None
        except (ImportError, AttributeError):  # a release with other modules has compiled it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code; if that is impossible, the next process compiles again."""
        if data.lifted or data.library.has_dynamic_globals:  # which hold addresses of this process
            return
        key = (sig, data.codegen.magic_tuple())
        path = self._path(key)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not is_trusted_cache_folder(path.parent):
                return
            # Without its listing of types, which nobody reads.
            content = dumps((key, data._replace(type_annotation="")._reduce()))
            draft.write_bytes(hashlib.sha256(content).digest() + content)
            draft.replace(path)
            delete_outdated_kernels(path.parent, self._prefix, self.current)
        except OSError:
            draft.unlink(missing_ok=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel: without the GIL, cached on disk, with exact arithmetic (no fastmath: -inf and ordered sums are
    needed).
    """
    return _compiled(function)


def inner_kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel for calls from other kernels only; omitting the Python wrapper saves a fifth of the compile
    time.

    A call from Python raises TypeError.
    """
    return _for_kernels(function)


def borrowing_kernel(function: Callable[..., Any]) -> Any:
    """Compile an inner kernel that uses its caller's arrays and slices of them, and makes and returns none.

    It counts no references: each count is an atomic operation, and some twenty for each table of a network took most of
    the time of one row (`benchmarks.null_rows`). Numba refuses to compile one that makes an array.
    """
    return _for_kernels(function, _nrt=False)


def _for_kernels(function: Callable[..., Any], **options: bool) -> Any:
    compiled = _compiled(function, no_cpython_wrapper=True, **options)
    if hasattr(compiled, "add_overload"):
        compiled.add_overload = lambda result: compiled.overloads.update({tuple(result.signature.args): result})
        compiled._compile_for_args = lambda *arguments, **named: _refuse(function.__name__)
    return compiled


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    # Nobody needs wrappers for callers in C, which take a seventh of a compilation.
    # Rewrites are of expressions of whole arrays: kernels have loops.
    compiled = numba.jit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, no_rewrites=True, **options)(function)
    if hasattr(compiled, "_cache"):  # not with NUMBA_DISABLE_JIT
        if (
            function.__closure__ is None
        ):  # of two kernels that differ by what they close over, files would not know which is which
            compiled._cache = KernelCache(function)
        # A call in a kernel is typed for whole numbers of any value: numba compiles for a counter's first value, too.
        of_call = compiled.get_call_template
        compiled.get_call_template = lambda args, kws: of_call([_without_value(kind) for kind in args], kws)
    return compiled


def _without_value(kind: types.Type) -> types.Type:
    return kind.literal_type if isinstance(kind, types.IntegerLiteral) else kind


def _refuse(name: str) -> None:
    raise TypeError(f"{name} is called by kernels only: make it a `kernel` to call it from Python.")


def load_numba_registries() -> None:
    """Load numba's registries of numpy functions, as the first kernel would."""
    import numba.np.arraymath  # noqa: F401


@contextmanager
def notify_on_kernel_compilation(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once if a kernel is compiled instead of loaded from disk, which takes seconds once per machine."""

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
