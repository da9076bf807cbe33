"""A full disk is a 507 wherever it is noticed: by us, by Arrow, by DuckDB, by the system itself."""

import errno
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from service.requests.problems import is_expected_error, problem_from_error
from storage.errors import StorageError, Unwritable
from storage.files import duckdb_files


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_so_is_what_a_full_device_says_to_python_and_to_arrow():
    with pytest.raises(OSError, match="No space left") as refused, open("/dev/full", "w") as file:
        file.write("x")
        file.flush()
    assert problem_from_error(refused.value).status == 507
    with pytest.raises(OSError, match="No space left") as refused, pa.OSFile("/dev/full", "wb") as file:
        file.write(b"x" * 100_000)
    assert problem_from_error(refused.value).status == 507


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (duckdb.IOException("IO Error: Could not write file: No space left on device"), Unwritable, 507),
        (duckdb.FatalException("FATAL Error: checkpoint failed: No space left on device"), Unwritable, 507),
        (duckdb.InternalException("INTERNAL Error: x"), StorageError, 500),
    ],
)
def test_so_is_what_duckdb_says_in_words(tmp_path, error, kind, status):
    with pytest.raises(kind) as refused, duckdb_files.open_duckdb_for_writing(tmp_path / "x.duckdb"):
        raise error
    assert problem_from_error(refused.value).status == status


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_refusal_of_the_system_is_a_507_and_other_errors_are_not(number):
    error = OSError(number, os.strerror(number), "/data/x")
    problem = problem_from_error(error)
    assert (problem.status, problem.slug) == (507, "workspace-cannot-be-written")
    assert os.strerror(number) in problem.detail
    assert "Free or remount the disk" in problem.detail
    assert is_expected_error(error)
    assert problem_from_error(OSError(errno.EIO, "Input/output error")).status == 500
    assert problem_from_error(ValueError("No space left on device")).status == 500, "words of somebody else"
