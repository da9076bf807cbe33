"""Tasks on threads end together: with their results in order, or with what failed first."""

from functools import partial
from threading import Event

import pytest

from learners.errors import Cancelled
from learners.passes.threads import run_on_threads


def until_stopped(stop):
    assert stop.wait(30)
    raise Cancelled


def fail(message):
    raise ValueError(message)


def test_results_come_in_the_order_of_the_tasks():
    assert run_on_threads([partial(int, i) for i in range(9)], 3, Event(), lambda: None, "test") == list(range(9))


def test_the_first_failure_in_their_order_stops_the_others_and_is_raised():
    stop = Event()
    tasks = [partial(until_stopped, stop), partial(fail, "first"), partial(fail, "second"), *[partial(int, 1)] * 50]
    with pytest.raises(ValueError, match="first"):
        run_on_threads(tasks, 3, stop, lambda: None, "test")
    assert stop.is_set()
