"""What collections look at once a process is loaded."""

import gc
import subprocess
import sys

import pytest

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
    told = subprocess.check_output([sys.executable, "-c", STEPS.format(is_frozen=is_frozen)], text=True).split()
    assert told == [str(not is_frozen), "True", str(is_frozen)]
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
