"""The limit of this process."""

import sys

import numpy as np
import pyarrow as pa
import pytest

from learners.passes.memory import (
    configure_memory_allocators,
    memory_limit,
    release_free_memory,
    resident_bytes,
    set_memory_limit,
)


@pytest.fixture(autouse=True)
def restored():
    before = memory_limit()
    yield
    set_memory_limit(before.n_bytes, before.directory)


def test_a_limit_holds_as_long_as_its_folder_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWPASS_MEMORY", "64MiB")
    folder = tmp_path / "workspace"
    folder.mkdir()
    set_memory_limit(1000, folder)
    assert memory_limit().n_bytes == 1000 and memory_limit().directory == folder
    folder.rmdir()
    assert memory_limit().n_bytes == 64 << 20 and memory_limit().directory.is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_arrays_leave_the_process():
    pool = pa.default_memory_pool()
    try:
        configure_memory_allocators()
        assert pa.default_memory_pool().backend_name == "system"
        release_free_memory()
        before = resident_bytes()
        # Of 3 MiB, which glibc keeps by default once it has seen larger ones.
        arrays = [np.ones(3 << 17) for _ in range(40)]
        assert resident_bytes() - before > 100 << 20
        del arrays
        release_free_memory()
        assert resident_bytes() - before < 20 << 20
    finally:
        pa.set_memory_pool(pool)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_was_freed_below_something_in_use_leaves_the_process():
    release_free_memory()
    before = resident_bytes()
    texts = [b"x" * (64 << 10) for _ in range(1_000)]
    last = texts.pop()
    texts.clear()
    grown = resident_bytes() - before
    assert grown > 50 << 20, "glibc keeps it, as the last one is above"
    release_free_memory()
    assert resident_bytes() - before < 20 << 20 and last
