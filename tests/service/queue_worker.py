"""A worker process whose jobs need no learner: they count, fail, or kill their process. Run by test_jobs.py."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from learners.errors import UnknownColumn
from service.jobs.steps import Run, Step
from service.jobs.worker import run
from service.settings import Settings


def count(run: Run) -> dict:
    """Count to n, a chunk every 50 ms; each start leaves a line in the log file."""
    with Path(run.request["log"]).open("a") as log:
        log.write("count\n")
    for done in range(run.request["n"]):
        run.report({"rows_done": done, "rows_total": run.request["n"]})
        time.sleep(0.05)
    return {"counted": run.request["n"]}


def finish(run: Run) -> dict:
    """The second step: dies if told to, so that a restart has to find the first step's receipt."""
    with Path(run.request["log"]).open("a") as log:
        log.write("finish\n")
    if run.request.get("die") and Path(run.request["log"]).read_text().count("finish") <= run.request["die"]:
        os._exit(9)
    return {"total": run.receipts["count"]["counted"]}


def fail(run: Run) -> dict:
    if run.request["expected"]:
        raise UnknownColumn("agee", ["age"])
    raise ZeroDivisionError("one over nothing")


def clean(job_id: str) -> None:
    (Path(sys.argv[1]) / f"{job_id}.cleaned").touch()


KINDS = {"count": (Step("count", count), Step("finish", finish)), "fail": (Step("fail", fail),)}

if __name__ == "__main__":
    workspace = Path(sys.argv[1])
    settings = Settings(workspace=workspace, job_poll_s=0.05, progress_s=0.1, job_attempts=3)
    run(settings, f"sqlite:///{workspace}/control.sqlite", workspace / "workers", KINDS, clean, os.getppid())
