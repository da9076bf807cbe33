"""Kernels are compiled for few types: else every thread, file and mapped model would wait for the compiler again."""

import contextlib
import gc
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, drive, encode, load_model, record_classifier
from learners.kernels.cache import is_trusted_cache_folder, untrusted_cache_reason
from learners.kernels.jit import borrowing_kernel, inner_kernel, kernel, notify_on_kernel_compilation
from learners.registry import recipes
from tests.kernels.kernel_table import kernels_of

ROOT = Path(__file__).parents[2]
KERNELS = (
    "learners.schema.discretise_kernels",
    "learners.schema.encoding.column_code_kernels",
    "learners.schema.hash_kernels",
    "learners.counts.kernels",
    "learners.counts.cell_kernels",
    "learners.classifiers.lookup.kernels",
)
MOST_SIGNATURES = 2  # of uint8 and uint16 codes


def kernels():
    return [pair for module in KERNELS for pair in kernels_of(module)]


def signatures():
    """Number of compiled signatures of every kernel."""
    return {name: len(kernel.signatures) for name, kernel in kernels()}


def n_compiled():
    """How many signatures were compiled here, and not found in the cache on disk."""
    return sum(sum(kernel.stats.cache_misses.values()) for _, kernel in kernels())


def table_of(n_values):
    rng = np.random.default_rng(n_values)
    y = rng.integers(0, 2, 4000)
    return pa.table(
        {
            "word": pa.array([None if v == 0 else f"w{v}" for v in rng.integers(0, n_values, 4000)]),
            "small": pa.array(((y + rng.integers(0, 3, 4000)) % 4).astype(np.uint8)),
            "number": y + rng.normal(0, 1, 4000),
            "class": pa.array(["u", "v"]).take(pa.array(y)),
        }
    )


def main_paths(folder):
    """Train from a file and from memory, predict in batches and one by one, with fresh and with mapped arrays."""
    for n_values in (5, 900):
        table = table_of(n_values)
        pq.write_table(table, folder / "x.parquet", row_group_size=1000)
        for source in (Source.open(folder / "x.parquet"), Source.of_table(table)):
            for name in ("nb", "tan", "kdb"):
                model = drive(recipes.learner(name, {}, "class"), source, threads=2)
                header, arrays = model.to_arrays()
                mapped = {}
                for key, array in arrays.items():
                    mapped[key] = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
                    assert not mapped[key].flags.writeable
                for one in (model, load_model(header, mapped)):
                    chunk = encode(table, one.schema)
                    one.predict_proba(chunk)
                    one.predict_proba(chunk.rows(slice(0, 7)))
                    record_classifier(one)(table.slice(0, 1).to_pylist()[0])


def in_a_fresh_process(folder):
    """Signatures after the main paths once and twice, where no other test has called a kernel; and how many were new."""
    code = (
        "import json, pathlib, sys; from tests.kernels.test_jit import main_paths, n_compiled, signatures; "
        "folder = pathlib.Path(sys.argv[1]); main_paths(folder); once = signatures(); main_paths(folder); "
        "print(json.dumps([once, signatures(), n_compiled()]))"
    )
    run = [sys.executable, "-c", code, str(folder)]
    return json.loads(subprocess.run(run, check=True, capture_output=True, cwd=ROOT).stdout)


def test_kernels_have_few_signatures_and_mapped_models_add_none(tmp_path):
    # Where a kernel is compiled, those that it calls are, too, for types of its own. All come from the cache at the second
    # time, unless another process has written to it at the same moment.
    once, twice, n_new = in_a_fresh_process(tmp_path)
    while n_new:
        once, twice, n_new = in_a_fresh_process(tmp_path)
    for name, n in once.items():
        assert n <= MOST_SIGNATURES, name
    assert once["learners.classifiers.lookup.kernels.look_up_class_probabilities"] == 2
    assert twice == once


def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed(tmp_path):
    """Though its own file is the same: numba's cache knows that file only."""
    package = tmp_path / "learners"
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copytree(ROOT / "learners" / "kernels", package / "kernels")
    (package / "outer_kernels.py").write_text(
        "from learners.kernels.jit import kernel\nfrom learners.inner_kernels import inner\n\n\n"
        "@kernel\ndef outer(x):\n    return inner(x) + 1\n"
    )
    asked = [sys.executable, "-c", "from learners.outer_kernels import outer; print(outer(1), outer.stats.cache_hits)"]
    found = []
    for factor in (2, 2, 30, 2):
        source = f"from learners.kernels.jit import kernel\n\n\n@kernel\ndef inner(x):\n    return {factor} * x\n"
        (package / "inner_kernels.py").write_text(source)  # also where the text stays, as a checkout does
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        number, *hits = done.stdout.split(maxsplit=1)
        found.append((number, hits != ["Counter()\n"]))
    assert found == [("3", False), ("3", True), ("31", False), ("3", True)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder of kernels on disk that is empty."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def flipped(content):
    """With one bit changed in its middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


# As between two releases: the name of a kernel's file does not tell where the types of its arguments are defined.
MOVED = (b"cno_such_module\nName\n.", b"clearners.schema\nNoSuchName\n.")


@pytest.mark.parametrize("other", [flipped, *(lambda _, own=own: hashlib.sha256(own).digest() + own for own in MOVED)])
def test_a_kernel_that_is_damaged_or_of_types_that_have_moved_is_compiled_anew(cache, other):
    assert not n_found(1)
    assert n_found(1)
    (file,) = (path for path in cache.rglob("*") if path.is_file())
    file.write_bytes(other(file.read_bytes()))
    assert not n_found(1)
    assert n_found(1)


def tripled(x):
    return 3 * x


def n_found(number):
    """How often a fresh form of a kernel is found on disk when it is called once."""
    form = kernel(tripled)
    assert form(number) == 3 * number
    return sum(form.stats.cache_hits.values())


def test_compilation_is_noticed_once_and_what_is_compiled_already_is_not():
    told = []

    @numba.njit
    def following(x):
        return x + 1

    for number in (1, 2):
        with notify_on_kernel_compilation(lambda number=number: told.append(number)):
            assert following(1) == 2 and following(1.5) == 2.5
    assert told == [1]


def spaces(n):
    if n > 9:
        raise ValueError("more than nine")
    return np.empty(n).size


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("number", "words"), [(10, "more than nine"), (-1, "negative dimensions not allowed")])
def test_a_kernel_from_disk_raises_its_errors_and_those_of_numpy(number, words):
    for n_hits in (0, 1):
        form = kernel(spaces)
        assert form(3) == 3
        assert sum(form.stats.cache_hits.values()) == n_hits
        with pytest.raises(ValueError, match=words):
            form(number)


@inner_kernel
def doubled(x):
    return 2 * x


@pytest.mark.usefixtures("cache")
def test_an_inner_kernel_from_disk_serves_kernels_and_refuses_python():
    doubled.compile((numba.int64,))
    again = inner_kernel(doubled.py_func)
    assert kernel(lambda x: again(x) - 1)(3) == 5
    assert sum(again.stats.cache_hits.values()) == 1
    with pytest.raises(TypeError, match="doubled is called by kernels only"):
        again(3)


def sum_of_tails(x, y):
    total = 0.0
    for row in range(x.shape[0]):
        own, other = x[row], y[row]
        for first in range(own.size):
            for term in own[first:]:
                other[first] += term
        total += other[0]
    return total


@pytest.mark.usefixtures("cache")
def test_a_borrowing_kernel_leaves_its_callers_references_as_they_were():
    inner = borrowing_kernel(sum_of_tails)
    outer = kernel(lambda x, y: inner(x, y))
    x, y = np.ones((2, 3)), np.zeros((2, 3))
    n_references = sys.getrefcount(x)
    assert outer(x, y) == 6.0 and sys.getrefcount(x) == n_references


def copied(x):
    return np.empty(x.size)[0]


@pytest.mark.usefixtures("cache")
def test_a_borrowing_kernel_that_makes_an_array_is_not_compiled():
    inner = borrowing_kernel(copied)
    with pytest.raises(numba.core.errors.NumbaError, match="NRT required but not enabled"):
        kernel(lambda x: inner(x))(np.zeros(3))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_compilation_leaves_the_garbage_collector_as_it_was(is_enabled):
    was_enabled = gc.isenabled()
    seen = []
    with notify_on_kernel_compilation(lambda: seen.append(gc.isenabled())):
        (gc.enable if is_enabled else gc.disable)()
        try:
            assert kernel(lambda x: x + 1)(1) == 2
            assert gc.isenabled() == is_enabled
        finally:
            (gc.enable if was_enabled else gc.disable)()
    assert seen == [False]


@pytest.mark.usefixtures("cache")
def test_kernels_that_close_over_values_are_not_mistaken_for_each_other():
    def adding(summand):
        return kernel(lambda x: x + summand)

    assert [adding(summand)(1) for summand in (1, 2)] == [2, 3]


def test_kernels_that_others_may_have_written_are_neither_loaded_nor_kept(tmp_path, cache):
    """What is loaded is a pickle: whoever puts one there runs code as this user."""
    assert not n_found(1)
    assert n_found(1)
    for place, mode, who in [
        (tmp_path, 0o777, "other users may write in"),
        (cache, 0o777, "other users may write in"),
        (cache, 0o1777, None),  # like /tmp: nobody replaces the folder inside
    ]:
        is_trusted_cache_folder.cache_clear()
        before = place.stat().st_mode
        place.chmod(mode)
        with pytest.warns(RuntimeWarning, match=who) if who else contextlib.nullcontext():
            assert bool(n_found(1)) == (who is None), oct(mode)
        place.chmod(before)
    (inner,) = cache.iterdir()
    inner.chmod(0o1777)  # where the files are, stickiness lets everybody add one
    is_trusted_cache_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match="Each process compiles the kernels again"):
        assert not n_found(1)
    inner.chmod(0o755)
    is_trusted_cache_folder.cache_clear()
    assert n_found(1)


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "is_refused"),
    [
        (0o755, 1000, 1000, False),
        (0o775, 1000, 1000, False),  # a group of the user's own
        (0o775, 1000, 100, True),
        (0o757, 1000, 1000, True),
        (0o700, 1001, 1001, True),
        (0o755, 0, 0, False),  # an image that root has made
        (0o775, 0, 0, False),
    ],
)
def test_a_cache_folder_is_judged_by_its_mode_and_owner(tmp_path, monkeypatch, mode, uid, gid, is_refused):
    found = os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))
    whole = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **named: found if path == tmp_path else whole(path, **named))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert (untrusted_cache_reason(tmp_path) is not None) == is_refused
