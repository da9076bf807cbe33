"""One process from which all runs are forked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.faults.asking import Forker


@pytest.fixture(scope="session")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) is on the PATH")
    forker = Forker(tmp_path_factory.mktemp("forker"))
    yield forker
    forker.close()
