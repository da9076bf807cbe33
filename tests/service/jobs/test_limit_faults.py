"""Jobs that take too much memory or time: they fail and say so, others go on, and the worker is there for the next."""

import errno
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.jobs.job_limits import Limits, counts_memory_limit, format_byte_size, job_limits
from service.jobs.worker_slots import Budget, acquire_worker_slot, is_worker_slot_taken
from service.processes.local_server import local_server
from service.requests.problems import InvalidRequest
from service.requests.requests import EvaluateRequest, RefreshRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import Unwritable
from tests import processes
from tests.service.asking import client_of, train_job, training
from tests.support.cli import fewpass
from tests.support.jobs import counting, counts, finished, wait_for

pytestmark = pytest.mark.faults

MIB, GIB = 1 << 20, 1 << 30


OVER = {"n": 1000, "memory_limit": 256 * MIB}
GIVEN_UP = "used more than 256 MiB of memory and was stopped. Raise memory_limit"
BROKEN = "The process of this job ended with SIGSEGV: a library crashed on its input"


@pytest.mark.parametrize(
    ("kind", "request_", "title", "words"),
    [
        # In small pieces: it hears that it is over its limit long before it is over it by far.
        ("grow", OVER | {"mib": 4}, "Out of memory", GIVEN_UP),
        ("grow", OVER | {"tells": False}, "Out of memory", GIVEN_UP),
        ("refuse", {}, "Out of memory", "Unable to allocate 8 EiB"),
        ("end", {"signal": signal.SIGKILL}, "Out of memory", "The kernel killed the process of this job"),
        ("end", {"signal": signal.SIGSEGV}, "Job failed", BROKEN),
        ("sleep", {"s": 600, "time_limit_s": 0.5}, "Job failed", "ran longer than 0.5 s"),
    ],
)
def test_what_ends_a_job_ends_that_job_and_nothing_else(queue, workers, tmp_path, kind, request_, title, words):
    """It is told with what to do, and never tried again; the next job goes on in the same worker."""
    log = tmp_path / "log"
    ended, _ = queue.submit(kind, request_ | {"log": str(log)})
    after, _ = queue.submit("grow", {"n": 3, "log": str(tmp_path / "log2"), "memory_limit": 256 * MIB})
    process = workers.start()
    job = wait_for(queue, ended.id, finished)
    assert (job.state, job.error["title"], job.attempts) == ("failed", title, 1) and words in job.error["detail"]
    if kind == "grow":
        assert job.error["memory_limit"] == 256 * MIB < job.error["memory_used"]
    assert kind == "refuse" or log.read_text().split() == [kind], "one start, whatever DBOS makes of it"
    assert wait_for(queue, after.id, finished).result == {"held": 3, "limit": 256 * MIB}
    assert process.poll() is None and (tmp_path / f"{ended.id}.cleaned").exists()


def test_a_job_whose_process_the_system_ends_in_order_starts_its_step_again(queue, workers, tmp_path):
    """As systemd does, which tells all processes of a service to end."""
    job, _ = queue.submit("count", counts(tmp_path, 4))
    process = workers.start()
    wait_for(queue, job.id, counting)
    for child in psutil.Process(process.pid).children(recursive=True):
        if not child.children():
            child.terminate()
    processes.wait_for(lambda: (tmp_path / "log").read_text().count("count") == 2)
    (tmp_path / "gate").touch()
    assert wait_for(queue, job.id, finished).state == "succeeded"


def test_a_job_ends_with_its_worker_and_when_that_is_silent(queue, workers, tmp_path, monkeypatch):
    monkeypatch.setenv("QUEUE_WORKER_LEASE_S", "2")
    job, _ = queue.submit("count", counts(tmp_path, 4))
    process = workers.start()
    wait_for(queue, job.id, counting)
    children = psutil.Process(process.pid).children(recursive=True)
    working = [child for child in children if not child.children() and child.ppid() != process.pid]
    assert working
    process.send_signal(signal.SIGSTOP)
    assert not psutil.wait_procs(working, 60)[1]
    process.send_signal(signal.SIGCONT)
    processes.wait_for(lambda: (tmp_path / "log").read_text().count("count") == 2)
    wait_for(queue, job.id, counting)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert not psutil.wait_procs(children, 60)[1]


# Limits


def test_a_job_says_its_limits_or_the_settings_do():
    settings = Settings(job_memory="2GiB", job_timeout_s=100)
    assert job_limits(settings, {}) == Limits(2 * GIB, 100)
    assert job_limits(settings, {"memory_limit": 5 * GIB, "time_limit_s": 10}) == Limits(5 * GIB, 10)
    assert job_limits(settings, {"time_limit_s": 1000}) == Limits(2 * GIB, 100)  # what the operator says bounds it
    assert job_limits(Settings(job_memory_budget="8GiB", job_workers=2, job_concurrency=2), {}).memory == 2 * GIB
    assert job_limits(Settings(), {}) == Limits(None, None)
    train = {"uris": ["x"], "learner": "nb", "model": "m", "memory_limit": "1.5 GiB"}
    assert job_limits(settings, RefreshRequest(train=train).model_dump()).memory == 3 * GIB // 2
    assert job_limits(settings, RefreshRequest(train=train, memory_limit="1GiB").model_dump()).memory == GIB
    spilling = Settings(memory="4GiB")
    assert (counts_memory_limit(spilling, GIB), counts_memory_limit(spilling, None)) == (GIB // 8, 4 * GIB)
    assert "memory_limit" not in TrainRequest(uris=["x"], learner="nb", model="m").model_dump()  # as stored until now


@pytest.mark.parametrize("limit", ["much", "10 MiB", 5, True, "1 XB", 2.5])
def test_a_limit_that_cannot_be_meant_is_refused_with_what_can(limit):
    message = r"memory_limit=.* must be a number of bytes, or such as 512MiB or 2GiB"
    with pytest.raises(ValueError, match=message):
        EvaluateRequest(model="m", dataset="d", memory_limit=limit)
    with pytest.raises(ValueError, match="such as 512MiB or 4GiB"):
        Settings(job_memory="much")


def test_a_job_that_can_never_fit_is_refused(tmp_path, weather_files):
    with Workspace(Settings(workspace=tmp_path / "workspace", job_memory_budget="1GiB")) as workspace:
        request = training(weather_files[0], memory_limit="2GiB")
        with pytest.raises(InvalidRequest, match="asks for 2 GiB of memory, and all jobs together have 1 GiB"):
            product.submit_job(workspace, request, is_remote=False)


@pytest.mark.parametrize(("n_bytes", "text"), [(3 << 29, "1.5 GiB"), (300 << 20, "300 MiB"), (5, "5 bytes")])
def test_bytes_are_said_as_people_do(n_bytes, text):
    assert format_byte_size(n_bytes) == text


# Several at once


class Refused(Exception):
    """Somebody stops waiting."""


def refuse():
    raise Refused


@pytest.fixture
def slots(tmp_path):
    """Of two workers of this machine: their numbers, and what locks them."""
    taken = [acquire_worker_slot(tmp_path) for _ in range(2)]
    yield taken
    for _, lock in taken:
        lock.close()


def test_a_budget_is_shared_in_order_and_what_the_dead_held_is_free(tmp_path, slots):
    (zero, _), (one, other) = slots
    mine, yours = Budget(tmp_path, zero, 10), Budget(tmp_path, one, 10)
    mine.take("a", 6, refuse)
    with pytest.raises(Refused):
        yours.take("b", 6, refuse)
    yours.take("c", 4, refuse)
    with pytest.raises(Refused):
        yours.take("d", 1, refuse)
    order: list[str] = []

    def tries(job, n_bytes):
        with pytest.raises(Refused):
            mine.take(job, n_bytes, refuse)
        order.append(job)

    mine.give_back("a")
    waiting = {"slot": one, "job": "large", "bytes": 7, "is_held": False}  # came first, and does not fit yet
    mine.path.write_text(json.dumps([*json.loads(mine.path.read_text()), waiting]))
    tries("small", 1)
    yours.give_back("c")
    yours.take("large", 7, refuse)
    other.close()  # the worker dies
    mine.take("whole", 10, refuse)
    mine.path.write_text("torn")
    mine.take("again", 10, refuse)
    assert order == ["small"]
    Budget(tmp_path, zero, 10).take("after a restart", 10, refuse)
    Budget(tmp_path, zero, None).take("without end", 10**12, refuse)


def test_a_full_disk_neither_loses_claims_nor_keeps_them(tmp_path, slots, monkeypatch):
    mine, yours = (Budget(tmp_path, slot, 10) for slot, _ in slots)
    mine.take("a", 6, refuse)
    yours.take("b", 4, refuse)

    def full(draft, _text):
        draft.write_bytes(b"[")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(Unwritable, match="cannot be written"):
            yours.take("c", 4, refuse)
        mine.give_back("a")
    with pytest.raises(Refused):
        mine.take("d", 7, refuse)  # b still holds its four
    mine.take("e", 6, refuse)  # and a has ended


def test_to_look_whether_a_worker_lives_takes_no_slot_from_one_that_starts(tmp_path):
    acquire_worker_slot(tmp_path)[1].close()
    is_over = threading.Event()

    def look():
        while not is_over.is_set():
            is_worker_slot_taken(tmp_path, 0)

    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        slots = set()
        for _ in range(200):
            slot, lock = acquire_worker_slot(tmp_path)
            slots.add(slot)
            lock.close()
        is_over.set()
        for each in looking:
            each.result()
    assert slots == {0}


def test_jobs_that_do_not_fit_wait_for_each_other(queue, workers, tmp_path, monkeypatch):
    monkeypatch.setenv("FEWPASS_JOB_MEMORY_BUDGET", "1GiB")
    asked = counts(tmp_path, 3) | {"memory_limit": 600 * MIB}
    jobs = [queue.submit("count", asked)[0] for _ in range(2)]
    for _ in range(2):
        workers.start()

    def told():
        return [queue.get(job.id).progress or {} for job in jobs]

    processes.wait_for(lambda: "waiting for memory" in [progress.get("stage") for progress in told()])
    processes.wait_for(lambda: any(progress.get("rows_done") == 2 for progress in told()))
    assert (tmp_path / "log").read_text().split() == ["count"]  # the other has not begun
    (tmp_path / "gate").touch()
    done = [wait_for(queue, job.id, finished) for job in jobs]
    assert [job.state for job in done] == ["succeeded"] * 2
    assert (tmp_path / "log").read_text().split() == ["count", "finish"] * 2  # one after the other


# A training


def table_of_words(path, n_rows, n_columns, seed):
    rng = np.random.default_rng(seed)
    columns = {f"a{number}": pa.array(rng.integers(0, 120, n_rows).astype(str)) for number in range(n_columns)}
    pq.write_table(pa.table(columns | {"class": rng.integers(0, 2, n_rows)}), path, row_group_size=25_000)
    return path


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A table whose families have more cells than may stay in memory."""
    return table_of_words(tmp_path_factory.mktemp("wide") / "wide.parquet", 60_000, 6, 0)


@pytest.fixture(scope="module")
def wider(wide):
    """One of which the trees of five parents need several times 256 MiB."""
    return table_of_words(wide.with_name("wider.parquet"), 300_000, 60, 1)


def test_a_job_under_its_limit_spills_and_succeeds_and_one_over_it_leaves_the_server_as_it_was(tmp_path, wide, wider):
    settings = Settings(workspace=tmp_path / "workspace", job_poll_s=0.05, progress_s=0.1, threads=1)
    spilled: set[Path] = set()
    with local_server(settings) as server, client_of(server) as client:
        ids = []
        for k, limit, table in ((2, "360 MiB", wide), (5, 256 * MIB, wider), (1, "512MiB", wide)):
            asked = train_job(table, f"k-{k}", "kdb", holdout=0, parameters={"k": k}, memory_limit=limit)
            ids.append(client.post("/v1/jobs", json=asked).json()["id"])
        jobs = []
        for job_id in ids:
            while (job := client.get(f"/v1/jobs/{job_id}").json())["state"] not in {"succeeded", "failed"}:
                spilled |= set((settings.workspace / "scratch").glob(".*.partial/temporary/fewpass-cells-*"))
                assert client.get("/readyz").status_code == 200
                time.sleep(0.02)
            jobs.append(job)
        assert [job["state"] for job in jobs] == ["succeeded", "failed", "succeeded"], [job["error"] for job in jobs]
        assert jobs[1]["error"]["title"] == "Out of memory" and "more than 256 MiB" in jobs[1]["error"]["detail"]
        assert spilled and jobs[0]["request"]["memory_limit"] == 360 * MIB
        assert '"memory_peak"' in client.get(f"/v1/jobs/{ids[0]}/log").text
    assert not {path.name for path in (settings.workspace / "scratch").iterdir()} & set(ids)


def test_a_training_on_the_command_line_keeps_to_its_limit_too(tmp_path, wider):
    """It looks at its limit itself, whenever it reports."""
    train = ["train", wider, "-t", "class", "-n", "wide", "-l", "kdb", "--k", 5, "--holdout", 0]
    train += ["--memory-limit", "256MiB"]
    over = fewpass(*train, workspace=tmp_path / "workspace", code=1)
    assert "used more than 256 MiB of memory" in " ".join(over.stderr.split())
    bad = fewpass(*train[:-1], "lots", workspace=tmp_path / "workspace", code=1)
    assert "memory_limit='lots' must be" in " ".join(bad.stderr.split())
