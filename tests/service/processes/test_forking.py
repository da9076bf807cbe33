"""Several serving processes: forked from one that loaded everything, replaced when they die, ended with their parents."""

import os
import shutil
import signal
import subprocess
import sys

import httpx
import psutil
import pytest

from service import product
from service.processes.local_server import local_server
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import ended, in_threads, wait_for
from tests.service.asking import client_of, learn
from tests.support.http import RECORD

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="serving processes are forked on Linux only")
ASKED = {"records": [RECORD]}
PATH = "/v1/models/weather@champion/predict"
MIB = 2**20


@pytest.fixture(scope="module")
def settings(site, tmp_path_factory):
    folder = tmp_path_factory.mktemp("forking") / "workspace"
    shutil.copytree(site.workspace, folder)
    settings = Settings(workspace=folder, workers=3, predict_only=True, job_workers=0, generation_poll_s=0.05)
    with Workspace(settings) as workspace:
        product.set_alias(workspace, "weather", "champion", 1)
        learn(workspace, site.train, parameters={}, holdout=0)
    return settings


@pytest.fixture(scope="module")
def server(settings):
    """One for all tests: each leaves it with its three serving processes."""
    with local_server(settings) as server:
        yield server


def loader_of(server):
    """The process that the serving ones are forked from."""
    (loader,) = psutil.Process(server.pid).children()
    return loader


def servers_of(server):
    return {child.pid for child in loader_of(server).children()}


def ask(server):
    """On a connection of its own, which any of the processes may take."""
    with client_of(server) as client:
        return client.post(PATH, json=ASKED)


def answers_again(server):
    try:
        return ask(server).status_code == 200
    except httpx.HTTPError:
        return False


def wait_for_three(server, without=frozenset()):
    """Until three serving processes run and none of some others."""
    wait_for(lambda: len(servers_of(server)) == 3 and not servers_of(server) & without)


def test_each_holds_little_memory_of_its_own(server):
    wait_for_three(server)
    assert {ask(server).status_code for _ in range(60)} == {200}
    loader = loader_of(server)
    assert "threads run beside the fork" not in server.log.read_text()
    for pid in servers_of(server):
        memory = psutil.Process(pid).memory_full_info()
        assert memory.uss < 80 * MIB < memory.rss, "shared, but not read from disk again"
    assert loader.memory_full_info().uss < 80 * MIB


@pytest.mark.parametrize("fault", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.faults)])
def test_a_killed_or_hanging_serving_process_is_replaced(server, fault):
    wait_for_three(server)
    before = servers_of(server)
    victim = min(before)
    os.kill(victim, fault)
    wait_for_three(server, {victim})
    assert len(servers_of(server) & before) == 2
    wait_for(lambda: answers_again(server))
    assert {ask(server).status_code for _ in range(30)} == {200}


@pytest.mark.faults
def test_a_killed_loader_is_replaced_with_all_that_were_forked_from_it(server):
    loader, before = loader_of(server), servers_of(server)
    os.kill(loader.pid, signal.SIGKILL)
    wait_for(lambda: ended(before))
    wait_for(lambda: answers_again(server))
    assert loader_of(server).pid != loader.pid
    assert not servers_of(server) & before


@pytest.mark.faults
def test_nothing_outlives_a_killed_server(settings):
    with local_server(settings) as server:
        family = {server.pid, loader_of(server).pid, *servers_of(server)}
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: ended(family))


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_requests_under_way_are_answered_before_the_end(settings, number):
    with local_server(settings) as server:
        family = {server.pid, loader_of(server).pid, *servers_of(server)}
        failures: list[str] = []
        answered: list[int] = []

        def keep_asking():
            with client_of(server) as client:
                while True:
                    try:
                        answered.append(client.post(PATH, json=ASKED).status_code)
                    except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
                        return False  # it has stopped, or closed a connection between two answers
                    except httpx.HTTPError as error:
                        failures.append(repr(error))
                        return False

        with in_threads(keep_asking, 4):
            wait_for(lambda: len(answered) > 50)
            os.kill(server.pid, number)
        assert not failures and set(answered) == {200}
        wait_for(lambda: ended(family))
        assert "Traceback" not in server.log.read_text()


def test_each_process_takes_over_a_promotion_and_no_answer_is_mixed(server, settings):
    wait_for_three(server)
    seen: list[int] = []
    with in_threads(lambda: seen.append(ask(server).json()["version"]), 3):
        wait_for(lambda: len(seen) > 30)
        with Workspace(settings) as workspace:
            product.set_alias(workspace, "weather", "champion", 2)
        wait_for(lambda: set(seen[-60:]) == {2})  # of every process, as each takes one connection in three
    assert set(seen[:30]) == {1} and set(seen) == {1, 2}


@pytest.mark.faults
def test_hangup_takes_new_processes_and_drops_no_request(server):
    wait_for_three(server)
    before, loader = servers_of(server), loader_of(server).pid
    os.kill(server.pid, signal.SIGHUP)
    wait_for_three(server, before)
    assert loader_of(server).pid == loader
    wait_for(lambda: answers_again(server))


def rows_counted(server):
    with client_of(server) as client:
        lines = client.get("/metrics").text.splitlines()
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith("fewpass_predicted_rows_total"))


def test_metrics_of_all_processes_are_added_up(server):
    before = rows_counted(server)
    assert {ask(server).status_code for _ in range(40)} == {200}
    assert rows_counted(server) == before + 40
    with client_of(server) as client:
        assert client.get("/v1/jobs").status_code == 404  # of a server that only predicts


def test_what_is_forked_has_no_pandas_and_no_tracing_and_looks_for_garbage_as_usual():
    code = (
        "import gc, sys; usual = gc.get_threshold()\n"
        "from service.processes.forking import preload_serving_modules; from service.settings import Settings\n"
        "preload_serving_modules(Settings(warm_up=False))\n"
        "assert gc.get_threshold() == usual and gc.get_freeze_count() > 100_000\n"
        "print(*(name in sys.modules for name in ('pandas', 'opentelemetry.sdk', 'service.http.app')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]
