# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Copies as loops: the assignment of one slice to another compiles the words of an error into every kernel that has one."""

from __future__ import annotations

from learners.kernels.jit import inner_kernel


@inner_kernel
def copy(x, to):
    """OUT to: the first values are those of x, which has no more."""
    for i in range(x.size):
        to[i] = x[i]
