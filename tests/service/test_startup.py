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
