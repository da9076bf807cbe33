"""How the tests run hypothesis' state machines."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test


def run_machine(machine, n_examples, n_steps, number):
    """So many runs of so many steps, the same for the same number; a failure is shrunk if FEWPASS_TEST_SHRINK is set."""
    how = settings(
        max_examples=n_examples,
        stateful_step_count=n_steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, *([Phase.shrink] if os.environ.get("FEWPASS_TEST_SHRINK") else [])],
    )
    run_state_machine_as_test(seed(number)(machine), settings=how)


def memory_folder():
    """A temporary folder in memory, where there is such a place: a machine commits thousands of times, and nobody cuts its power."""
    place = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=place if os.access(place, os.W_OK) else None)
