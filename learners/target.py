"""A target of numba of our own: its CPU, with our libraries of code. Kernels of other packages in a process stay as they are."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import sigutils, types, typing
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.environment import Environment, lookup_environment
from numba.core.registry import CPUDispatcher, CPUTarget
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_override, target_registry
from numba.core.typed_passes import NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes
from numba.core.utils import threadsafe_cached_property

from learners.array_items import registry as array_items

NAME = "fewpass"
MOST_INLINED = 400  # instructions; LLVM seldom inlines what is larger, and single predictions took 8 % longer with 150
UNUSED_PASSES = (NopythonRewrites, InlineClosureLikes)


class Library(JITCodeLibrary):
    """What a function is compiled to: machine code only when somebody asks for an address in it.

    Numba translates every function by itself, also those that only kernels call, which are then linked into their callers and
    translated there again. It optimises them by themselves, too, and that must stay: loops have fewer lanes without (a prediction
    took twice as long).
    """

    _is_emitted = False

    def __init__(self, codegen: Codegen, name: str) -> None:
        super().__init__(codegen, name)
        self._large_callees: dict[Library, None] = {}

    def add_linking_library(self, library: Library) -> None:
        """Take in a function that this one calls."""
        library._ensure_finalized()
        if library.is_large:
            self._large_callees[library] = None
            self._reload_init.update(library._reload_init)
        else:
            super().add_linking_library(library)

    @cached_property
    def is_large(self) -> bool:
        """Whether LLVM would not inline it: optimising it again in each function that calls it would gain nothing."""
        instructions = (
            instruction
            for function in self.get_defined_functions()
            for block in function.blocks
            for instruction in block.instructions
        )
        return next(islice(instructions, MOST_INLINED, None), None) is not None

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()
        for library in self._large_callees:  # which have been optimised already
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)

    def _optimize_functions(self, ll_module: llvm.ModuleRef) -> None:
        """As numba's, with one pass manager for all functions: one for each took a thirtieth of a compilation."""
        ll_module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager()
        for function in ll_module.functions:
            if not function.is_declaration:
                manager.run(function, builder)

    def get_pointer_to_function(self, name: str) -> int:
        """Address of a function; 0 if it is not defined here."""
        self._ensure_finalized()
        if not self._is_emitted and self._defines(name):
            self._emit()
        return int(super().get_pointer_to_function(name))

    def serialize_using_object_code(self) -> tuple[str, str, object]:
        """What is kept on disk: without machine code, if there is none."""
        self._ensure_finalized()
        return super().serialize_using_object_code() if self._is_emitted else self.serialize_using_bitcode()

    def _defines(self, name: str) -> bool:
        try:
            return not self._final_module.get_function(name).is_declaration
        except NameError:
            return False

    def _finalize_final_module(self) -> None:
        if self._object_caching_enabled and self._compiled_object:  # read from disk
            self._emit()
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def _emit(self) -> None:
        self._is_emitted = True
        super()._finalize_final_module()
        for variable in self._final_module.global_variables:  # of functions linked in, which had no code of their own
            if variable.name.startswith("_ZN08NumbaEnv"):
                environment = lookup_environment(variable.name)
                if environment is not None:
                    self._codegen.set_env(variable.name, environment)


class Codegen(JITCPUCodegen):
    """Makes machine code for the whole of this processor."""

    _library_class = Library

    def set_env(self, name: str, environment: Environment) -> None:
        """Hand compiled code its constants, once there is code."""
        if self._engine.is_symbol_defined(name):
            super().set_env(name, environment)

    # LLVM limits itself to 256-bit registers by default; popcounts run 1.4 times faster on whole 512-bit ones.
    # Somebody who bakes a cache for many machines sets NUMBA_CPU_NAME=generic, and then we do not interfere.
    def _get_host_cpu_name(self) -> str:
        return str(super()._get_host_cpu_name() if _is_processor_given() else llvm.get_host_cpu_name())

    def _get_host_cpu_features(self) -> str:
        if _is_processor_given():
            return str(super()._get_host_cpu_features())
        return f"{llvm.get_host_cpu_features().flatten()},-prefer-256-bit"


def _is_processor_given() -> bool:
    return "NUMBA_CPU_NAME" in os.environ or "NUMBA_CPU_FEATURES" in os.environ


class Context(CPUContext):
    """How a kernel's operations become code."""

    _has_registries = False

    def init(self) -> None:
        """As numba's, with our codegen."""
        super().init()
        self._internal_codegen = Codegen("fewpass.exec")

    def load_additional_registries(self) -> None:
        """Imports them once; numba does so for every intrinsic of a function, and for every kernel from disk."""
        if self._has_registries:
            for registry in self._registries:
                self.install_registry(registry)
        else:
            super().load_additional_registries()
            self.install_registry(array_items)
            self._has_registries = True


class TypingContext(typing.Context):
    """What calls in a kernel mean: remembered, as numba tries all forms of an operator anew wherever it stands."""

    def __init__(self) -> None:
        super().__init__()
        self._meanings: dict[tuple[object, ...], tuple[typing.Signature, object]] = {}

    def resolve_function_type(
        self, func: object, args: Sequence[types.Type], kws: dict[str, types.Type]
    ) -> typing.Signature | None:
        """The signature of a call."""
        if not isinstance(func, types.Function):
            return super().resolve_function_type(func, args, kws)
        call = (func, *args, *kws.items())
        if call in self._meanings:
            signature, implementation = self._meanings[call]
            # Kernels of other packages may have set it to their own since.
            vars(func)["_impl_keys"][signature.args] = implementation
            return signature
        found = super().resolve_function_type(func, args, kws)
        if found is not None:
            self._meanings[call] = found, func.get_impl_key(found)
        return found


class Target(CPU):
    """Whatever numba can do on a CPU."""


class TargetDescriptor(CPUTarget):
    """The contexts, made when the first kernel is."""

    @threadsafe_cached_property
    def _toplevel_typing_context(self) -> TypingContext:
        return TypingContext()

    @threadsafe_cached_property
    def _toplevel_target_context(self) -> Context:
        return Context(self.typing_context, self._target_name)


class Compiler(CompilerBase):
    """Numba's, without the passes that kernels have no work for: for expressions of whole arrays, and functions within functions."""

    def define_pipelines(self) -> list[PassManager]:
        """The one of kernels."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [each for each in manager.passes if each[0] not in UNUSED_PASSES]
        manager.finalize()
        return [manager]


class Options(Flags):
    """Options of a compilation, compared by those that were set.

    Numba looks up what it has resolved by them, 30,000 times for a model, and reads all forty twice each time, though its hash is
    of their names only.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(Options)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Options):
            return NotImplemented  # numba's own compares all values
        mine, others = self._values, other._values
        return mine == others or all(
            getattr(self, name) == getattr(other, name) for name in mine.keys() | others.keys()
        )


class Dispatcher(CPUDispatcher):
    """A function of our target, with a compiled form for each tuple of types that it is called with."""

    targetdescr = TargetDescriptor(NAME)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._compiler._customize_flags = Options

    def get_call_template(self, args: Sequence[types.Type], kws: Any) -> Any:
        """What a call of a kernel means: for whole numbers of any value. Numba would compile it for a counter's first, too."""
        if hasattr(self._cache, "alone"):
            args = [kind.literal_type if isinstance(kind, types.IntegerLiteral) else kind for kind in args]
        return super().get_call_template(args, kws)

    def compile(self, sig: Any) -> Any:
        """Compile for a signature; only one of all processes does, the others find the result on disk."""
        alone = getattr(self._cache, "alone", None)
        with global_compiler_lock, target_override(NAME), _without_collection():
            if alone is None or tuple(sigutils.normalize_signature(sig)[0]) in self.overloads:
                return super().compile(sig)
            with alone(sig, self.targetctx):
                return super().compile(sig)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Leaves garbage alone: a compilation makes little, and looking for it takes a seventh of its time.

    Numba compiles under one lock, so that nobody else changes this meanwhile.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _jit(*arguments: Any, **options: Any) -> Any:
    """`numba.jit` for our target. What numba writes in Python, such as `np.empty`, has no wrappers: kernels call it."""
    return numba.jit(*arguments, _target=NAME, no_cfunc_wrapper=True, **options)


target_registry[NAME] = Target
dispatcher_registry[Target] = Dispatcher
jit_registry[Target] = _jit
