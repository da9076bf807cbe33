"""How the tests run hypothesis' state machines."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support import kept_seeds


def run_machine(machine, n_examples, n_steps, number, file=kept_seeds.KEPT):
    """So many runs of so many steps, the same for the same number, after those that have failed before."""
    name = machine.__name__
    seeds = [*kept_seeds.kept_seeds(name, file), {"examples": n_examples, "steps": n_steps, "number": number}]
    for one in seeds:
        with kept_seeds.storing(name, file, **one):
            _run(machine, one["examples"], one["steps"], one["number"])


def _run(machine, n_examples, n_steps, number):
    """A failure is shrunk if FEWPASS_TEST_SHRINK is set."""
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
