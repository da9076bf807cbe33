"""How statements of kernels become instructions: numba's way, without what LLVM would have to remove.

Numba counts the references to every variable, numbers and all. Here only to what holds memory; and an argument is borrowed: who calls
has it longer than the call lasts. So it is a value, while numba keeps it on the stack and loads it for each use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from llvmlite import ir as llvm
from numba.core import ir, lowering, types
from numba.core.base import BaseContext as Target
from numba.core.compiler_machinery import register_pass
from numba.core.runtime.context import NRTContext
from numba.core.typed_passes import BaseNativeLowering


class References(NRTContext):
    """Counts references to memory."""

    def __init__(self, context: Target, is_enabled: bool) -> None:
        super().__init__(context, is_enabled)
        self._holding: dict[types.Type, bool] = {}

    def are_of(self, kind: types.Type) -> bool:
        """Whether values of a type hold memory."""
        if kind not in self._holding:
            self._holding[kind] = bool(self._context.data_model_manager[kind].contains_nrt_meminfo())
        return self._holding[kind]

    def get_meminfos(
        self, builder: llvm.IRBuilder, ty: types.Type, val: llvm.Value
    ) -> list[tuple[types.Type, llvm.Value]]:
        """Type and pointer of all memory that a value holds."""
        return list(self._held(builder, ty, val))

    def _held(
        self, builder: llvm.IRBuilder, kind: types.Type, value: llvm.Value
    ) -> Iterator[tuple[types.Type, llvm.Value]]:
        if not self.are_of(kind):
            return
        model = self._context.data_model_manager[kind]
        if model.has_nrt_meminfo():
            yield kind, model.get_nrt_meminfo(builder, value)
        member: types.Type
        getter: Callable[[llvm.Value], llvm.Value]
        for member, getter in model.traverse(builder):
            if self.are_of(member):
                yield from self._held(builder, member, getter(value))


class Lower(lowering.Lower):
    """Makes instructions of a function's statements."""

    def _find_singly_assigned_variable(self) -> None:
        super()._find_singly_assigned_variable()
        assigned = [each for block in self.blocks.values() for each in block.find_insts(ir.Assign)]
        times = Counter(each.target.name for each in assigned)
        self._borrowed = {
            each.target.name
            for each in assigned
            if isinstance(each.value, ir.Arg) and times[each.target.name] == 1 and self._is_as_given(each)
        }
        self._singly_assigned_vars |= self._borrowed

    def _is_as_given(self, assignment: ir.Assign) -> bool:
        given = self.typeof(f"arg.{assignment.value.name}")
        return bool(given == self.typeof(assignment.target.name))

    def lower_assign(self, ty: types.Type, inst: ir.Assign) -> llvm.Value:
        """The value of an assignment."""
        if inst.target.name in self._borrowed:
            return self.fnargs[inst.value.index]
        return super().lower_assign(ty, inst)

    def storevar(self, value: llvm.Value, name: str, argidx: int | None = None) -> None:
        """Store a variable; numba loads what was there before, to give it back."""
        if argidx is None and name in self.varmap and not self.context.nrt.are_of(self.typeof(name)):
            self.builder.store(value, self.varmap[name])
        else:
            super().storevar(value, name, argidx)

    def delvar(self, name: str) -> None:
        """Give back what a variable holds."""
        is_counted = name not in self._borrowed and self.context.nrt.are_of(self.typeof(name))
        if is_counted or name not in (self.varmap.keys() | self._blk_local_varmap.keys()):
            super().delvar(name)


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(BaseNativeLowering):
    """Numba's pass, with our instructions."""

    _name = "fewpass_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """What makes them."""
        return Lower
