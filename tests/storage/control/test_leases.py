"""Leases of workers: who has lost his lease writes nothing, not even what he had begun to wait for."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage.control.control import open_control
from storage.control.leases import end_lease, list_worker_leases, renew_lease, take_lease
from storage.errors import LeaseLost
from storage.models import model_versions
from tests.machines import memory_folder


def url(folder):
    return f"sqlite:///{folder}/control.sqlite"


def test_a_worker_whose_lease_was_ended_writes_nothing(tmp_path):
    with open_control(url(tmp_path)) as worker, open_control(url(tmp_path)) as other:
        take_lease(worker, "w-1", "here", 0, 30)
        assert model_versions.reserve_version(worker, "m") == 1
        renew_lease(worker, "w-1")
        assert [(lease.id, lease.beats, lease.lease_s) for lease in list_worker_leases(other)] == [("w-1", 1, 30)]
        assert end_lease(other, "w-1") and not end_lease(other, "w-1")
        with pytest.raises(LeaseLost, match="w-1 did not renew its lease in time"):
            model_versions.reserve_version(worker, "m")
        with pytest.raises(LeaseLost, match="FEWPASS_LEASE_S"):
            renew_lease(worker, "w-1")
        assert model_versions.reserve_version(other, "m") == 2  # nobody took 2
        assert list_worker_leases(other) == ()


class Leases(RuleBasedStateMachine):
    """Any number of workers that come, beat, write and are taken for dead, against a set of those that hold a lease."""

    def __init__(self):
        super().__init__()
        self.folder = memory_folder()
        self.looker = open_control(url(Path(self.folder.name)))
        self.controls: dict[str, object] = {}
        self.alive: dict[str, int] = {}
        self.last = 0

    @precondition(lambda self: len(self.controls) < 4)
    @rule()
    def start(self):
        worker = f"w-{len(self.controls)}"
        self.controls[worker] = open_control(url(Path(self.folder.name)))
        take_lease(self.controls[worker], worker, "here", len(self.controls), 30)
        self.alive[worker] = 0

    @precondition(lambda self: self.controls)
    @rule(choice=st.integers(0, 3), is_beat=st.booleans())
    def write(self, choice, is_beat):
        worker = sorted(self.controls)[choice % len(self.controls)]
        control = self.controls[worker]
        if worker not in self.alive:
            with pytest.raises(LeaseLost, match=worker):
                renew_lease(control, worker) if is_beat else model_versions.reserve_version(control, "m")
        elif is_beat:
            renew_lease(control, worker)
            self.alive[worker] += 1
        else:
            self.last += 1
            assert model_versions.reserve_version(control, "m") == self.last

    @precondition(lambda self: self.controls)
    @rule(choice=st.integers(0, 3))
    def end(self, choice):
        worker = sorted(self.controls)[choice % len(self.controls)]
        assert end_lease(self.looker, worker) == (worker in self.alive)
        self.alive.pop(worker, None)

    @invariant()
    def are_as_expected(self):
        assert {lease.id: lease.beats for lease in list_worker_leases(self.looker)} == self.alive

    def teardown(self):
        for control in (*self.controls.values(), self.looker):
            control.close()
        self.folder.cleanup()


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
