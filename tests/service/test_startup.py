"""What a process loads as it starts, what collections look at once it is loaded, and how it ends."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service import startup

STEPS = """
import gc
from service.startup import restore_gc_after_startup
if {is_frozen}:
    gc.freeze()
before = gc.get_freeze_count()
young = [[] for _ in range(400)]
restore_gc_after_startup()
print(len(gc.get_objects(0)) < 200, gc.get_freeze_count() >= before, bool(gc.get_freeze_count()))
"""


@pytest.mark.parametrize("is_frozen", [False, True])
def test_young_objects_become_old_and_frozen_ones_stay_frozen(is_frozen):
    printed = subprocess.check_output([sys.executable, "-c", STEPS.format(is_frozen=is_frozen)], text=True).split()
    assert printed == [str(not is_frozen), "True", str(is_frozen)]
    assert gc.isenabled()


ENDING = """
import atexit, sys, threading, time
from service.startup import end_without_teardown
class Kept:
    def __del__(self):
        print("taken apart")
kept = Kept()
atexit.register(print, "called at the end")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread done"))).start()
with end_without_teardown():
    sys.exit({code})
"""


@pytest.mark.parametrize("code, status, said", [("3", 3, []), ("", 0, []), ("'no'", 1, ["taken apart"])])
def test_a_process_ends_with_its_status_and_all_that_it_owes_but_without_teardown(code, status, said):
    done = subprocess.run([sys.executable, "-c", ENDING.format(code=code)], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()) == (status, ["thread done", "called at the end", *said])


def test_a_process_that_began_without_output_ends_well():
    command = ["sh", "-c", '"$0" -c "$1" >&-', sys.executable, ENDING.format(code="")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


UNUSED = """
import sys
from service import startup
startup.skip_unused_imports()
import scipy.optimize
before = {"unittest", "scipy.fft"} & set(sys.modules)
import numpy.testing
numpy.testing.assert_equal(1, 1)
import scipy.spatial, scipy.linalg.interpolative
rank, _, _ = scipy.linalg.interpolative.interp_decomp(numpy.ones((2, 2)), 1e-6, rand=False)
print(len(before), "unittest" in sys.modules, rank, scipy.spatial.ConvexHull([[0, 0], [0, 1], [1, 0]]).volume)
"""


def test_a_package_that_is_only_named_loads_when_it_is_used():
    assert subprocess.check_output([sys.executable, "-c", UNUSED], text=True).split() == ["0", "True", "1", "0.5"]


@pytest.mark.parametrize("is_there", [False, True])
def test_numba_reads_its_settings_where_there_are_any(is_there, tmp_path):
    if is_there:
        (tmp_path / ".numba_config.yaml").write_text("boundscheck: 1\n")
    code = "from service import startup; startup.skip_unused_imports(); import sys, numba; print(numba.config.BOUNDSCHECK, 'yaml' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(startup.__file__).parents[1])}
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=tmp_path, env=environment)
    assert printed.split() == (["1", "True"] if is_there else ["None", "False"])


CONFIGURED = """
import sys
from service.startup import configure_once_imported
for _ in range(2):
    configure_once_imported("colorsys", lambda module: setattr(module, "is_ours", True))
before = "colorsys" in sys.modules
import colorsys
configure_once_imported("json", lambda module: setattr(module, "is_ours", True))
import json
print(before, colorsys.is_ours, json.is_ours)
"""


def test_a_library_is_configured_when_it_is_loaded_or_at_once():
    printed = subprocess.check_output([sys.executable, "-c", CONFIGURED], text=True)
    assert printed.split() == ["False", "True", "True"]
