"""A full disk is a 507 wherever it is noticed: by us, by Arrow, by DuckDB, by the system itself."""

import contextlib
import errno
import os
import resource
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.operations import backup
from service.requests.problems import is_expected_error, problem_from_error
from service.settings import Settings
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role
from storage.errors import StorageError, Unwritable
from storage.files import duckdb_files
from storage.files.atomic_files import write_file_atomically


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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG])
def test_a_refusal_of_the_system_is_a_507_and_other_errors_are_not(number):
    error = OSError(number, os.strerror(number), "/data/x")
    problem = problem_from_error(error)
    assert (problem.status, problem.slug) == (507, "workspace-cannot-be-written")
    assert os.strerror(number) in problem.detail
    assert ("ulimit -f" if number == errno.EFBIG else "Free or remount the disk") in problem.detail
    assert is_expected_error(error)
    assert problem_from_error(OSError(errno.EIO, "Input/output error")).status == 500
    assert problem_from_error(ValueError("No space left on device")).status == 500, "words of somebody else"


@contextlib.contextmanager
def file_size_limit(n_bytes):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_limit_on_file_sizes_is_named_and_leaves_nothing_behind(tmp_path):
    def write_bytes(draft):
        draft.write_bytes(bytes(1 << 20))

    def write_parquet(draft):
        pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=1 << 17)}), draft)

    for write in (write_bytes, write_parquet):
        refused = pytest.raises(Unwritable, match=r"File too large. Raise .* \(ulimit -f\)")
        with file_size_limit(1 << 16), refused, write_file_atomically(tmp_path / "folder" / "x") as draft:
            write(draft)
    assert not list((tmp_path / "folder").iterdir())


def test_a_backup_is_not_called_damaged_where_its_files_may_not_be_so_large(tmp_path):
    with Workspace(Settings(workspace=tmp_path / "w")) as workspace:
        product.create_key(workspace, "ana", Role.READ)
        backup.back_up_workspace(workspace, tmp_path / "copy.tar")
    with file_size_limit(1 << 12), pytest.raises(Unwritable, match="File too large"):
        backup.restore_workspace(tmp_path / "copy.tar", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
