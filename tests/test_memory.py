"""The limit of this process."""

import pytest

from learners.memory import limit_memory, memory_limit


@pytest.fixture(autouse=True)
def restored():
    before = memory_limit()
    yield
    limit_memory(before.n_bytes, before.directory)


def test_a_limit_holds_as_long_as_its_folder_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWPASS_MEMORY", "64MiB")
    folder = tmp_path / "workspace"
    folder.mkdir()
    limit_memory(1000, folder)
    assert memory_limit().n_bytes == 1000 and memory_limit().directory == folder
    folder.rmdir()
    assert memory_limit().n_bytes == 64 << 20 and memory_limit().directory.is_dir()
