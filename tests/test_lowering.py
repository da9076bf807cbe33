"""References that kernels count: every kernel gives back what it takes, and what it answers outlives it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

from learners.jit import inner_kernel, kernel

ROOT = Path(__file__).parent.parent


@kernel
def itself(x):
    return x


@kernel
def pair(x, y):
    return y, x


@kernel
def rest(x):
    return x[1:]


@kernel
def swapped(x, y, times):
    for _ in range(times):
        x, y = y, x
    return x


@kernel
def replaced(x):
    if x.size > 3:
        x = np.zeros(3)
    x[0] = 7
    return x


@inner_kernel
def longer(x, y):
    if x.size > y.size:
        return x
    return y


@inner_kernel
def with_one(x):
    found = np.empty(x.size + 1)
    found[: x.size] = x
    found[x.size] = 1
    return found


@kernel
def longest(x, y, z):
    return longer(longer(x, y), z)


@kernel
def grown(x, times):
    for _ in range(times):
        x = with_one(x)
    return x


@kernel
def sum_of_grown(x, times):
    total = 0.0
    for _ in range(times):
        scratch = with_one(x)
        if scratch.size < 2:
            continue
        kept = (scratch, x)
        total += kept[0][-1] + kept[1][0]
    return total


@kernel
def refused(x):
    scratch = np.zeros(x.size)
    if x[0] < 0:
        raise ValueError("a negative number")
    return scratch


def arrays(*sizes):
    return tuple(np.arange(1.0, 1.0 + size) for size in sizes)


CALLS = {
    "itself": (itself, arrays(4)),
    "pair": (pair, arrays(2, 3)),
    "rest": (rest, arrays(4)),
    "swapped": (swapped, (*arrays(2, 3), 3)),
    "not swapped": (swapped, (*arrays(2, 3), 0)),
    "replaced": (replaced, arrays(5)),
    "not replaced": (replaced, arrays(2)),
    "first is longest": (longest, arrays(5, 3, 2)),
    "last is longest": (longest, arrays(1, 3, 4)),
    "same twice": (longest, (arrays(3)[0],) * 3),
    "grown": (grown, (*arrays(2), 3)),
    "not grown": (grown, (*arrays(2), 0)),
    "sum of grown": (sum_of_grown, (*arrays(2), 5)),
    "not refused": (refused, arrays(2)),
}


def references(arguments):
    """How many references there are to each array."""
    return [sys.getrefcount(each) for each in arguments if isinstance(each, np.ndarray)]


def in_python(function, arguments):
    """What a kernel answers when Python runs its text."""
    names = {"np": np, "longer": longer.py_func, "with_one": with_one.py_func}
    return type(function.py_func)(function.py_func.__code__, names)(*arguments)


@pytest.fixture(scope="module")
def allocations():
    """What numba's runtime has allocated and freed, which it counts while this lasts."""
    _nrt_python.memsys_enable_stats()
    yield rtsys.get_allocation_stats
    _nrt_python.memsys_disable_stats()


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_answers_as_python_and_gives_back_what_it_takes(name, allocations):
    function, arguments = CALLS[name]
    copied = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
    expected = in_python(function, copied)
    function(*arguments)  # compiled
    gc.collect()
    before = references(arguments)
    own = allocations()
    for _ in range(20):
        found = function(*arguments)
        if not isinstance(found, tuple):
            found, wanted = (found,), (expected,)
        else:
            wanted = expected
        for each, other in zip(found, wanted, strict=True):
            assert np.array_equal(each, other)
        del found, each
    assert references(arguments) == before
    now = allocations()
    assert now.alloc - own.alloc == now.free - own.free
    assert now.mi_alloc - own.mi_alloc == now.mi_free - own.mi_free


def test_what_a_kernel_answers_outlives_its_arguments():
    for function, sizes in ((itself, (9,)), (rest, (9,)), (longest, (9, 8, 7))):
        given = arrays(*sizes)
        wanted = given[0][1:].copy() if function is rest else given[0].copy()
        found = function(*given)
        del given
        taken = [np.full(9, -1.0) for _ in range(50)]  # where memory that was given back would be
        assert np.array_equal(found, wanted) and len(taken) == 50


def test_a_refusal_gives_back_the_arguments():
    x = np.array([-1.0, 2.0])
    before = sys.getrefcount(x)
    for _ in range(5):
        with pytest.raises(ValueError, match="a negative number"):
            refused(x)
    assert sys.getrefcount(x) == before


def test_kernels_load_from_disk_without_the_modules_that_their_functions_stand_in(tmp_path):
    """One of numba's, which `sum` is written in, looks for a BLAS in scipy."""
    (tmp_path / "own_kernels.py").write_text(
        "import numpy as np\nfrom learners.jit import kernel\n\n\n@kernel\ndef room(n):\n    return np.zeros(n).sum()\n"
    )
    asked = (
        "import sys\nfrom own_kernels import room\n"
        "print(room(3), sum(room.stats.cache_hits.values()), 'scipy.linalg' in sys.modules)"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", str(ROOT))])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [each.stdout.split() for each in said] == [["0.0", "0", "True"], ["0.0", "1", "False"]]
