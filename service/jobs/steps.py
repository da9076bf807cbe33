"""What a job is made of, free of DBOS, so that the command line can run the same steps in its own process."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.requests.json_values import JSONObject
from storage.files.workspace_layout import Layout

LOCAL = "local-"  # how the id of a job begins that a command runs in its own process


@dataclass(frozen=True)
class Run:
    """What a step knows of the job it works for.

    `receipts` holds what the earlier steps returned, by name; `report` records progress and raises Cancelled when the
    job was cancelled, so calling it between two chunks is all that a long step has to do. `memory_limit` is what the job
    may use in bytes, or None.
    """

    job_id: str
    request: JSONObject
    receipts: dict[str, JSONObject]
    report: Callable[[JSONObject], None]
    memory_limit: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether a command runs it in its own process, for whoever owns that process."""
        return self.job_id.startswith(LOCAL)


# The steps of a job by name, in order. One may run again after a crash, so it replaces what it wrote and never adds.
Steps = Mapping[str, Callable[[Run], JSONObject]]
Kinds = Mapping[str, Steps]


def clean(layout: Layout, job_id: str) -> None:
    """Remove what a job that has ended left in its scratch folder."""
    shutil.rmtree(layout.scratch_directory(job_id), ignore_errors=True)


def run_now(
    steps: Steps,
    job_id: str,
    request: JSONObject,
    report: Callable[[JSONObject], None],
    memory_limit: int | None = None,
) -> JSONObject:
    """Run the steps one after another in this process; the last receipt is the result."""
    receipts: dict[str, JSONObject] = {}
    for name, work in steps.items():

        def report_step(progress: JSONObject, name: str = name) -> None:
            report({"step": name, **progress})

        receipts[name] = work(Run(job_id, request, receipts, report_step, memory_limit))
    return receipts[list(steps)[-1]]
