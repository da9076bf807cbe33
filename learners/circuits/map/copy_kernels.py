# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Copies as loops: the assignment of one slice to another compiles the words of an error into every kernel that has one."""

from __future__ import annotations

from learners.kernels.jit import inner_kernel


@inner_kernel
def copy(x, to):
    """OUT to: the first values are those of x, which has no more."""
    for i in range(x.size):
        to[i] = x[i]


@inner_kernel
def copy_columns(x, first, n, to, at):
    """OUT to: columns at..at+n-1 are columns first..first+n-1 of x, which has as many rows."""
    for row in range(x.shape[0]):
        for i in range(n):
            to[row, at + i] = x[row, first + i]
