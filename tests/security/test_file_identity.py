"""Within one training a file is what it was: whoever changes one between passes, in whatever way, is told; nothing wrong is learned or kept."""

import os
import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from learners.errors import SourceError
from learners.passes.learner import Part, drive
from learners.passes.sources.source import Source, file_identity
from learners.passes.sources.source_files import file_stamp
from learners.registry import recipes

N = 4_000


def rows(seed, flipped=False):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    columns = {f"x{i}": np.array(["a", "b"])[(y if not flipped else 1 - y) ^ (rng.random(N) < 0.05)] for i in range(4)}
    return pa.table(columns | {"class": np.array(["no", "yes"])[y]})


def write(table, path):
    {".parquet": pq.write_table, ".csv": pacsv.write_csv, ".arrow": feather.write_feather}[path.suffix](table, path)


def alike(path, table, folder):
    """A file with other rows whose size is that of `path`, as far as its format lets that be."""
    other = folder / f"other{path.suffix}"
    write(table, other)
    return other


def replaced(path, other):
    shutil.copystat(path, other)
    os.replace(other, path)


def replaced_with_times(path, other):
    before = path.stat()
    os.replace(other, path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def in_place(path, other):
    before = path.stat()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def in_place_by_bytes(path, other):
    before = path.stat()
    with path.open("r+b") as file:
        file.write(other.read_bytes()[: before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def renamed_over(path, other):
    before = path.stat()
    path.rename(path.with_name("away"))
    other.rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def by_link(path, other):
    replaced_with_times(path, other)


def removed(path, other):
    other.unlink()
    path.unlink()


def truncated(path, other):
    other.unlink()
    os.truncate(path, path.stat().st_size // 2)


def appended(path, other):
    with path.open("ab") as file:
        file.write(other.read_bytes())


def there_and_back(path, other):
    """The other file and the first again, as somebody leaves it who saw a mistake."""
    kept = path.with_name("kept")
    shutil.copy2(path, kept)
    in_place(path, other)
    in_place(path, kept)


WAYS = [
    replaced,
    replaced_with_times,
    in_place,
    in_place_by_bytes,
    renamed_over,
    by_link,
    removed,
    truncated,
    appended,
    there_and_back,
]


class Store:
    """Statistics of a data set, as a later training finds them."""

    def __init__(self):
        self.kept = []

    def entries(self):
        return [entry for entry, _ in self.kept]

    def get(self, key):
        return next(table for entry, table in self.kept if entry.key == key)

    def put(self, key, table, *, spec, schema, files):
        self.kept.append((Kept(key, spec, schema, frozenset(files)), table))


class Kept:
    def __init__(self, key, spec, schema, files):
        self.key, self.spec, self.schema, self.files = key, spec, schema, files


def learned(path, store=None, at_pass=0, change=None):
    """A model of the file, changed before a pass begins."""
    passes = []

    def on_progress(progress):
        if progress.pass_number not in passes:
            passes.append(progress.pass_number)
            if progress.pass_number == at_pass:
                change()

    source = Source.open(path)
    return drive(
        recipes.learner("kdb", {"k": 1}, "class"), [Part(source, store)] if store else source, on_progress=on_progress
    )


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_file_that_changes_between_passes_is_refused_and_the_next_update_equals_scratch(tmp_path, way, suffix):
    path, store = tmp_path / f"rows{suffix}", Store()
    write(rows(1), path)
    other = alike(path, rows(1, flipped=True), tmp_path)
    if way is by_link:
        path.rename(tmp_path / f"target{suffix}")
        path.symlink_to(tmp_path / f"target{suffix}")
    with pytest.raises(SourceError, match=rf"rows{suffix} (has changed since it was opened|was removed while)"):
        learned(path, store, 2, lambda: way(path, other))
    if way in (removed, truncated):
        write(rows(1, flipped=True), path)  # what was left could not be learned
    kept = len(store.kept)
    assert same(learned(path, store), learned(path, Store()))
    again = len(store.kept)
    assert same(learned(path, store), learned(path, Store())) and len(store.kept) == again >= kept


def same(one, other):
    (_, own), (_, theirs) = one.to_arrays(), other.to_arrays()
    return own.keys() == theirs.keys() and all(np.array_equal(own[name], theirs[name]) for name in own)


def test_a_file_that_changes_while_its_rows_are_read_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    write(rows(2), path)
    source, other = Source.open(path), alike(path, rows(2, flipped=True), tmp_path)
    reading = source.batches()
    next(reading)
    in_place(path, other)
    with pytest.raises(SourceError, match="has changed since it was opened"):
        list(reading)


def test_a_chmod_or_a_restore_between_trainings_recounts_nothing(tmp_path):
    path, store = tmp_path / "rows.parquet", Store()
    write(rows(3), path)
    first, identity = learned(path, store), file_identity(Source.open(path).files[0])
    stamp = file_stamp(Source.open(path)._filesystem, str(path))
    kept = len(store.kept)
    time.sleep(0.02)  # a ctime of the kernel's clock
    path.chmod(0o600)
    shutil.copy2(path, tmp_path / "backup")
    os.replace(tmp_path / "backup", path)
    assert file_stamp(Source.open(path)._filesystem, str(path)) != stamp
    assert file_identity(Source.open(path).files[0]) == identity
    assert same(learned(path, store), first) and len(store.kept) == kept
