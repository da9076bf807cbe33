"""What a job is made of, free of DBOS, so that the command line can run the same steps in its own process."""

import shutil
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class Step:
    """A named piece of a job; it may run again after a crash, so it replaces what it wrote and never adds."""

    name: str
    run: Callable[[Run], JSONObject]


Kinds = Mapping[str, Sequence[Step]]


def clean(layout: Layout, job_id: str) -> None:
    """Remove what a job that has ended left in its scratch folder."""
    shutil.rmtree(layout.scratch_directory(job_id), ignore_errors=True)


def run_now(
    steps: Sequence[Step],
    job_id: str,
    request: JSONObject,
    report: Callable[[JSONObject], None],
    memory_limit: int | None = None,
) -> JSONObject:
    """Run the steps one after another in this process; the last receipt is the result."""
    receipts: dict[str, JSONObject] = {}
    for step in steps:

        def report_step(progress: JSONObject, name: str = step.name) -> None:
            report({"step": name, **progress})

        receipts[step.name] = step.run(Run(job_id, request, receipts, report_step, memory_limit))
    return receipts[steps[-1].name]
