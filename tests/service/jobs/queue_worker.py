"""A worker process whose jobs need no learner: they count, fail, or kill their process. Run by test_jobs.py."""

import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from dbos import DBOS

from learners.errors import UnknownColumn
from service.jobs import worker, workflows
from service.jobs.steps import remove_job_scratch
from service.jobs.worker import run_worker_loop
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import ControlUnavailable
from storage.models import model_versions


def note(run, word):
    """Add a line to the log that the request names; returns how often the word stands there."""
    with (log := Path(run.request["log"])).open("a") as file:
        file.write(f"{word}\n")
    return log.read_text().split().count(word)


def count(run):
    """Count to n, a chunk every 50 ms; each start leaves a line in the log file.

    Before a `gate`, a file that the test makes when it has seen enough, the third chunk does not end.
    """
    note(run, run.request.get("says", "count"))
    n, gate = run.request["n"], Path(run.request.get("gate", "/"))
    for done in range(n):
        is_first = True
        while is_first or (done == 2 and not gate.exists()):
            run.report({"rows_done": done, "rows_total": n})
            time.sleep(0.05)
            is_first = False
    return {"counted": n}


def finish(run):
    """The second step: dies if told to, so that a restart has to find the first step's receipt."""
    if note(run, "finish") <= run.request.get("die", 0):
        os.kill(int(os.environ["QUEUE_WORKER"]), signal.SIGKILL)
        time.sleep(60)  # until this process notices
    return {"total": run.receipts["count"]["counted"]}


def fail(run):
    if run.request["expected"]:
        raise UnknownColumn("agee", ["age"])
    raise ZeroDivisionError("one over nothing")


def grow(run):
    """Hold `n` pieces of 32 MiB, or of so many, one every 50 ms; tell of it only if asked to."""
    note(run, "grow")
    held = []
    for done in range(run.request["n"]):
        if run.request.get("tells", True):
            run.report({"rows_done": done, "rows_total": run.request["n"]})
        held.append(bytearray(b"x") * (run.request.get("mib", 32) << 20))
        time.sleep(0.05)
    return {"held": len(held), "limit": run.memory_limit}


def sleep(run):
    """A step that tells nothing."""
    note(run, "sleep")
    time.sleep(run.request["s"])
    return {}


def insist(run):
    """The control database is away for the first `n` times, or until the job is cancelled."""
    if note(run, "insist") <= run.request["n"]:
        raise ControlUnavailable("postgresql://… does not answer")
    return {}


def destroy_and_linger():
    """End DBOS as a stopped worker does; then give a job that outlives it a second to go on."""
    destroy()
    folder = Path(sys.argv[1])
    (folder / "destroyed").touch()
    if (folder / "outliving").exists():
        time.sleep(1)


def outlive(run):
    """The first time, end after DBOS has: the receipt comes too late."""
    log = Path(run.request["log"])
    is_first = not log.exists()
    log.touch()
    if is_first:
        (log.parent / "outliving").touch()
        while not (log.parent / "destroyed").exists():
            time.sleep(0.05)
    return {"counted": 1}


def end(run):
    """A library ends the process, or the kernel does."""
    note(run, "end")
    os.kill(os.getpid(), run.request["signal"])
    time.sleep(60)
    return {}


def refuse(run):
    raise MemoryError("Unable to allocate 8 EiB")


def reserve(workspace, run):
    """Write into the control database, some time after the last report."""
    time.sleep(run.request.get("s", 0))
    return {"version": model_versions.reserve_version(workspace.control, "m")}


def clean_and_tell(layout, job_id):
    remove_job_scratch(layout, job_id)
    (layout.root / f"{job_id}.cleaned").touch()


KINDS = {
    "count": {"count": count, "finish": finish},
    "fail": {"fail": fail},
    "end": {"end": end},
    "grow": {"grow": grow},
    "sleep": {"sleep": sleep},
    "insist": {"insist": insist},
    "outlive": {"count": outlive, "finish": finish},
    "refuse": {"refuse": refuse},
}


def kinds_of(workspace):
    return KINDS | {"reserve": {"count": count, "reserve": partial(reserve, workspace)}}


def open_kinds(settings, lease):
    """In the process of a job."""
    workspace = Workspace(settings)
    workspace.control.lease = lease
    return kinds_of(workspace)


if __name__ == "__main__":
    os.environ["QUEUE_WORKER"] = str(os.getpid())
    multiprocessing.set_forkserver_preload(["tests.service.jobs.queue_worker"])
    worker.LEFTOVERS_S = 0.2
    workflows.remove_job_scratch = clean_and_tell
    destroy, DBOS.destroy = DBOS.destroy, destroy_and_linger
    workspace = Path(sys.argv[1])
    lease_s = float(os.environ.get("QUEUE_WORKER_LEASE_S", "30"))
    attempts = int(os.environ.get("QUEUE_WORKER_ATTEMPTS", "3"))
    settings = Settings(workspace=workspace, job_poll_s=0.05, progress_s=0.1, job_attempts=attempts, lease_s=lease_s)
    opened = Workspace(settings)
    run_worker_loop(opened, kinds_of(opened), partial(open_kinds, settings), os.getppid())
