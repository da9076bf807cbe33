"""What a server reads for others: in a process that gives way to those that answer, and ends when nobody waits any more."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.jobs import job_limits
from service.jobs.children import Child, Children
from service.product.child_process import run_in_child_process
from service.requests.problems import TooSlow
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import ended, wait_for


def process_id(_workspace):
    return os.getpid()


def sleep(_workspace):
    time.sleep(600)


def test_a_reader_gives_way_and_ends_with_its_time(tmp_path, monkeypatch):
    given = {}

    def set_and_look(which, pid, niceness):
        # At once, as whoever looks after the machine may change it at any time.
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        set_priority(which, pid, niceness)
        given[pid] = ours, os.getpriority(os.PRIO_PROCESS, pid)

    set_priority = os.setpriority
    monkeypatch.setattr(job_limits.os, "setpriority", set_and_look)
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        pid = run_in_child_process(workspace, process_id)
        ours, found = given[pid]
        assert found == min(ours + job_limits.NICENESS, job_limits.LEAST_PRIORITY)
        with pytest.raises(TooSlow, match=r"takes longer than 0\.2 s\."):
            run_in_child_process(workspace, sleep, time_limit_s=0.2)
        wait_for(lambda: ended([pid]))


class SlowlyStarting(Child):
    n_starting = 0

    def start(self):
        self.n_starting += 1
        assert self.n_starting == 1, "two threads start the same process"
        time.sleep(0.05)
        super().start()
        self.n_starting -= 1


def test_a_process_that_starts_for_the_next_work_is_taken_once_it_has_started(monkeypatch):
    monkeypatch.setattr("service.jobs.children.Child", SlowlyStarting)
    children = Children(os.getpid)

    def work(_):
        with children.one() as child:
            child.start()

    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(6)))
    finally:
        children.close()
