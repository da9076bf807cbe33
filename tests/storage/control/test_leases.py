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
            with pytest.raises(LeaseLost, match=rf"{worker} did not renew its lease in time.* raise FEWPASS_LEASE_S"):
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
        assert end_lease(self.looker, worker) == (self.alive.pop(worker, None) is not None)

    @invariant()
    def are_as_expected(self):
        leases = {(lease.id, lease.beats, lease.lease_s) for lease in list_worker_leases(self.looker)}
        assert leases == {(worker, n_beats, 30) for worker, n_beats in self.alive.items()}

    def teardown(self):
        for control in (*self.controls.values(), self.looker):
            control.close()
        self.folder.cleanup()


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
