"""What every benchmark relies on: tasks in fresh processes, in turn."""

import json
import os
import signal
import statistics
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from benchmarks.measuring import Figure, alternated_apart, report, run_in_fresh_process


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_task_raises_in_its_process_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal"):
        run_in_fresh_process(int, "x")
    with pytest.raises(BrokenProcessPool):
        run_in_fresh_process(killed)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="elsewhere a peak begins with the parent's")
def test_the_peak_of_a_task_is_not_that_of_its_parent():
    held = np.ones(40_000_000)  # 305 MiB
    _, peak = run_in_fresh_process(statistics.mean, [1.0])
    assert peak < held.nbytes


def test_tasks_take_turns():
    found = alternated_apart(2, one=(os.getpid,), other=(max, 1, 2))
    assert [answer for answer, _ in found["other"]] == [2, 2]
    assert len({os.getpid(), *(answer for answer, _ in found["one"])}) == 3


def test_reports_tell_the_peak_memory(tmp_path, capsys):
    report("Title", [Figure("what", 2.0, 1.0, 3.0, "", "", "")], {"peak_rss_mib": {"ours": 10.0}}, tmp_path / "a.json")
    report("Title", [], {}, tmp_path / "b.json")
    assert "peak RSS, MiB: ours 10" in capsys.readouterr().out
    assert json.loads((tmp_path / "b.json").read_text())["peak_rss_mib"] > 1
