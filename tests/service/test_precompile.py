"""What an image compiles beforehand."""

from __future__ import annotations

from service.precompile import compile_everything


def test_every_kernel_has_been_compiled_once(tmp_path):
    """All learners, queries and solvers run on the little table."""
    assert compile_everything() > 0
