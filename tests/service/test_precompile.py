"""What an image compiles beforehand."""

from __future__ import annotations

import pytest

from service.precompile import compile_everything


@pytest.mark.timeout(1500)  # two minutes of compiling, where nothing has been compiled yet, on a core of its own
def test_every_kernel_has_been_compiled_once(tmp_path):
    """All learners, queries and solvers run on the little table."""
    assert compile_everything() > 0
