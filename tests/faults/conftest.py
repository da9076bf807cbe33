"""One process from which all runs are forked."""

import shutil

import pytest

from tests.faults.asking import Forker


@pytest.fixture(scope="session")
def forker(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) is on the PATH")
    forker = Forker(tmp_path_factory.mktemp("forker"))
    yield forker
    forker.close()
