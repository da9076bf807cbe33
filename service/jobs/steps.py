"""The steps of a job, which run in order: their context and their progress reports.

Free of DBOS, so that the command line can run the same steps in its own process.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.requests.json_values import JSONObject
from storage.files.atomic_files import delete_abandoned_draft, held_folder
from storage.files.workspace_layout import Layout

if TYPE_CHECKING:
    from learners.passes.engine import Progress  # which loads numba

Report = Callable[[JSONObject], None]  # how far a job is; it may raise, which stops the job
LOCAL = "local-"  # how the id of a job begins that a command runs in its own process


@dataclass(frozen=True)
class Run:
    """Context of a step: the job it works for.

    `receipts` holds what the earlier steps returned, by name; `report` records progress and raises Cancelled when the
    job was cancelled, so calling it between two chunks is all that a long step has to do. `memory_limit` is what the job
    may use in bytes, or None.
    """

    job_id: str
    request: JSONObject
    receipts: dict[str, JSONObject]
    report: Report
    memory_limit: int | None = None

    @property
    def is_local(self) -> bool:
        """True if a command runs the job in its own process, as the user of that process."""
        return self.job_id.startswith(LOCAL)


# The steps of a job by name, in order. One may run again after a crash, so it replaces what it wrote and never adds.
Steps = Mapping[str, Callable[[Run], JSONObject]]
Kinds = Mapping[str, Steps]


STAND_IN = "-networks"  # after the id of a job: a training within it, of networks that answer until the job is done


def owning_job(name: str) -> str:
    """Return the id of the job to which an id or a scratch folder belongs."""
    return name.removesuffix(STAND_IN)


@contextmanager
def local_scratch(layout: Layout, job_id: str) -> Iterator[None]:
    """Hold the scratch folder of a job in this process, and remove it afterwards, with those of processes that were killed."""
    remove_abandoned_scratch(layout)
    try:
        with held_folder(layout.scratch_directory(job_id)):
            yield
    finally:
        for name in (job_id, job_id + STAND_IN):
            remove_job_scratch(layout, name)


def remove_abandoned_scratch(layout: Layout) -> None:
    """Remove what killed commands have left in scratch: models that may know rows which are forgotten since."""
    for folder in layout.scratch.glob(f"{LOCAL}*"):
        if not folder.name.endswith(STAND_IN):
            delete_abandoned_draft(folder)
        elif not layout.scratch_directory(owning_job(folder.name)).exists():
            remove_job_scratch(layout, folder.name)


def remove_job_scratch(layout: Layout, job_id: str) -> None:
    """Remove the scratch folder of a job that has ended."""
    shutil.rmtree(layout.scratch_directory(job_id), ignore_errors=True)


def run_job_steps(
    steps: Steps, job_id: str, request: JSONObject, report: Report, memory_limit: int | None = None
) -> JSONObject:
    """Run the steps one after another in this process; the last receipt is the result."""
    receipts: dict[str, JSONObject] = {}
    for name, work in steps.items():

        def report_step(progress: JSONObject, name: str = name) -> None:
            report({"step": name, **progress})

        receipts[name] = work(Run(job_id, request, receipts, report_step, memory_limit))
    return receipts[list(steps)[-1]]


def ignore_report(_message: object) -> None:
    """Ignore progress reports or warnings."""


def progress_reporter(report: Report) -> Callable[["Progress"], None]:
    """Return a callback that converts the learners' progress to JSON values for `report`; exceptions from `report`
    propagate.
    """

    def on_progress(progress: "Progress") -> None:
        report(
            {
                "stage": progress.stage,
                "pass_number": progress.pass_number,
                "n_passes": progress.n_passes,
                "rows_done": progress.rows_done,
                "rows_total": progress.rows_total,
                "unit": progress.unit,
                "rows_per_s": round(progress.rows_per_s) if progress.unit == "rows" else None,
                "eta_s": None if progress.eta_s is None else round(progress.eta_s, 1),
                "seconds": round(progress.seconds, 3),
            }
            | ({"note": progress.note} if progress.note else {})
        )

    return on_progress
