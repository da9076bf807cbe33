"""Who is started again: every serving process, whatever has ended it; but none, if none could ever start."""

import threading
from types import SimpleNamespace

import pytest
from uvicorn.config import STARTUP_FAILURE

from service.processes import forking


class Fake:
    """A serving process that ends as the test says."""

    started = 0

    def __init__(self, _config=None, _sockets=None):
        self.exitcode: int | None = None
        self.pid = 1

    def start(self):
        Fake.started += 1

    def is_ready(self, _timeout):
        return self.exitcode is None

    def is_alive(self, timeout):
        return self.exitcode is None and timeout > 0

    def kill(self):
        """It has ended already."""

    join = kill


@pytest.fixture
def servers(monkeypatch):
    monkeypatch.setattr(forking.multiprocess, "Process", Fake)
    monkeypatch.setattr(forking, "AGAIN_S", 0.0)
    monkeypatch.setattr(Fake, "started", 0)
    servers = object.__new__(forking.Servers)
    vars(servers).update(
        config=SimpleNamespace(timeout_worker_healthcheck=1),
        sockets=[],
        processes=[Fake(), Fake()],
        should_exit=threading.Event(),
    )
    return servers


@pytest.mark.parametrize("code", [1, -11, -6, -9, STARTUP_FAILURE])
def test_one_that_ends_is_replaced_whatever_ended_it(servers, code):
    servers.keep_subprocess_alive()
    servers.processes[0].exitcode = code
    servers.keep_subprocess_alive()
    assert Fake.started == 1 and not servers.should_exit.is_set()
    assert [process.exitcode for process in servers.processes] == [None, None]


def test_a_server_that_never_could_start_ends(servers):
    for process in servers.processes:
        process.exitcode = STARTUP_FAILURE
    servers.keep_subprocess_alive()
    assert servers.should_exit.is_set() and Fake.started == 0
