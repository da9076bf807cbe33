"""A target of numba of our own: its CPU, with our libraries of code. Kernels of other packages in a process stay as they are."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import sigutils, types, typing
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.environment import Environment, lookup_environment
from numba.core.registry import CPUDispatcher, CPUTarget
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_override, target_registry
from numba.core.typed_passes import NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes
from numba.core.utils import threadsafe_cached_property

from learners.array_items import registry as array_items
from learners.garbage import make_old
from learners.loops import registry as loops
from learners.lowering import Lowering, References

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
    _bitcode: bytes | None = None  # of a library from disk, until a kernel that calls it is compiled

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
        functions = [function for function in self._get_module_for_linking().functions if not function.is_declaration]
        # In LLVM's text each stands in a line of its own.
        return sum(str(function).count("\n  ") for function in functions) > MOST_INLINED

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()
        for library in self._large_callees:  # which have been optimised already
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)

    def _optimize_functions(self, ll_module: llvm.ModuleRef) -> None:
        """As numba's, with one pass manager for all functions: one for each took a thirtieth of a compilation.

        At LLVM's level 1, as modules are optimised at its level 3 later: the same code as fast, a thirtieth of a compilation less.
        """
        ll_module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager(opt=1)
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
        """What is kept on disk: without machine code, if there is none; with the names of what it defines, if there is."""
        self._ensure_finalized()
        if not self._is_emitted:
            return self.serialize_using_bitcode()
        name, kind, (machine_code, bitcode) = super().serialize_using_object_code()
        module = self._get_module_for_linking()
        named = (*module.functions, *module.global_variables)
        return name, kind, (machine_code, bitcode, [value.name for value in named if not value.is_declaration])

    @classmethod
    def _unserialize(cls, codegen: Codegen, state: tuple[str, str, Any]) -> Library:
        """Numba's parses bitcode to find these names, two thirds of the time that loading takes."""
        name, kind, data = state
        if kind != "object":
            return super()._unserialize(codegen, state)
        self = codegen.create_library(name)
        machine_code, self._bitcode, defined = data
        self.enable_object_caching()
        self._set_compiled_object(machine_code)
        self._finalize_final_module()
        codegen.define(defined)
        return self

    def _get_module_for_linking(self) -> llvm.ModuleRef:
        if self._bitcode is not None:
            self._shared_module, self._bitcode = llvm.parse_bitcode(self._bitcode), None
        return super()._get_module_for_linking()

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

    def define(self, names: Iterable[str]) -> None:
        """Note what machine code from disk defines."""
        self._engine._defined_symbols.update(names)

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
        self._sizes: dict[str, int] = {}

    @cached_property
    def nrt(self) -> References:
        """Counts references."""
        return References(self, self.enable_nrt)

    def pair_first(self, builder: ir.IRBuilder, val: ir.Value, ty: types.Type) -> ir.Value:
        """What an iterator yields; numba puts the pair into memory for it."""
        return builder.extract_value(val, 0)

    def pair_second(self, builder: ir.IRBuilder, val: ir.Value, ty: types.Type) -> ir.Value:
        """Whether it yields something."""
        return builder.extract_value(val, 1)

    def get_abi_sizeof(self, ty: ir.Type) -> int:
        """Bytes of a type, for which llvmlite has LLVM parse a module each time."""
        name = str(ty)
        if name not in self._sizes:
            self._sizes[name] = super().get_abi_sizeof(ty)
        return self._sizes[name]

    def refresh(self) -> None:
        """Take over what has been registered since; numba looks through all of it before each function and intrinsic."""
        known = self.typing_context  # which the copies of this context for some options share
        if self._n_registered() != known.n_registered:
            super().refresh()
            self.install_registry(loops)  # after numba's own, which it replaces
            known.n_registered = self._n_registered()

    def _n_registered(self) -> int:
        """How many functions, attributes, conversions and constants there are: each registry has lists of them."""
        registries = (*self._registries, *self.typing_context._registries)
        return sum(len(each) for registry in registries for each in vars(registry).values())

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

    n_registered = -1

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
        passes = [each for each in manager.passes if each[0] not in UNUSED_PASSES]
        manager.passes = [(Lowering, about) if each is NativeLowering else (each, about) for each, about in passes]
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
            make_old()
            gc.enable()


def _jit(*arguments: Any, **options: Any) -> Any:
    """`numba.jit` for our target. What numba writes in Python, such as `np.empty`, has no wrappers: kernels call it."""
    return numba.jit(*arguments, _target=NAME, no_cfunc_wrapper=True, **options)


target_registry[NAME] = Target
dispatcher_registry[Target] = Dispatcher
jit_registry[Target] = _jit
