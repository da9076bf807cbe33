"""Jobs of a queue, and how they are waited for."""

from tests import processes


def wait_for(queue, job_id, reached):
    return processes.wait_for(lambda: job if reached(job := queue.get(job_id)) else None)


def finished(job):
    return job.is_finished


def counting(job):
    return job.state == "running" and bool(job.progress) and job.progress.get("rows_done", 0) >= 2


def counts(folder, n):
    """A request to count to n that stops at the third chunk until `folder / "gate"` is there."""
    return {"n": n, "log": str(folder / "log"), "gate": str(folder / "gate")}
