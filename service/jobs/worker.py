"""The worker process: takes jobs from the queue and runs them until it is stopped."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import structlog
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from dbos._dbos import _get_dbos_instance as dbos_of_process
from dbos._utils import INTERNAL_QUEUE_NAME, GlobalParams

from service.jobs import workflows
from service.jobs.children import Children, SocketFolder
from service.jobs.job_limits import total_job_memory
from service.jobs.queue import APPLICATION, APPLICATION_VERSION, QUEUE, JobQueue
from service.jobs.steps import Kinds
from service.jobs.worker_leases import LOCKS, LeaseKeeper
from service.jobs.worker_slots import Budget, acquire_worker_slot
from service.jobs.workflows import restart_worker_process
from service.telemetry import adopt_library_logger
from service.workspace import Workspace
from storage.errors import LeaseLost, Unwritable
from storage.files.workspace_layout import Witness

PARENT_CHECK_S = 1.0
REPEAT_S = 60.0
LEFTOVERS_S = 10.0
GONE = 4  # the exit code of a worker whose workspace was removed: another one would only make an empty one there


class OfDbos(logging.Filter):
    """Log filter for DBOS: one line per message, and repeats several times a second while its database is away are
    dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record, after cutting it to one line."""
        text = record.getMessage()
        if "in background workflow" in text:  # our steps have logged each failure already, with less noise
            return False
        subject, _, reason = text.partition(":")
        lines = [line for line in reason.splitlines() if line.strip()]
        if lines:
            record.msg, record.args = f"{subject}: {lines[-1 if 'Traceback' in reason else 0].strip()}", ()
        now = time.monotonic()
        is_new = now - self._logged_at.get(subject, -REPEAT_S) >= REPEAT_S
        if is_new:
            self._logged_at[subject] = now
        return is_new


def run_worker_loop(
    workspace: Workspace, kinds: Kinds, open_kinds: Callable[[str], Kinds], parent: int | None = None
) -> None:
    """Run jobs until SIGTERM or SIGINT, or until the parent process or the workspace is gone.

    A stopped worker does not change its running jobs: any other worker takes them over, or the next that starts.

    Parameters
    ----------
    workspace : its control database has the jobs; all that this process writes there is fenced by the worker's lease
    kinds : what to do for each kind of job
    open_kinds : `open_kinds(worker)` gives the same kinds in the process of a job, whose writes the lease of the worker
        fences; picklable
    parent : process id that must stay alive
    """
    settings, url, locks = workspace.settings, workspace.control_url, workspace.layout.root / LOCKS
    log = structlog.get_logger("worker")
    SocketFolder.begin()
    slot, lock = acquire_worker_slot(locks)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    budget = Budget(locks, slot, total_job_memory(settings))
    queue = JobQueue(url, settings.job_concurrency, settings.job_poll_s)
    keeper = LeaseKeeper(
        workspace.control,
        queue,
        locks,
        slot,
        lease_s=settings.lease_s,
        recover=DBOS._recover_pending_workflows,  # public once, and in no other way: `resume` forgets the attempts
        lost=_start_over,
        active=_active_jobs,
        requeue=_queue_again,
    )
    children = Children(
        partial(open_kinds, keeper.worker), n_kept=settings.job_concurrency, silence_s=settings.lease_s / 2
    )
    children.warm()
    config: DBOSConfig = {
        "name": APPLICATION,
        "system_database_url": url,
        "application_version": APPLICATION_VERSION,
        "executor_id": keeper.worker,
        "log_level": "WARNING",
        "serializer": DBOSPortableJSONSerializer(),  # JSON, so that reading the database never runs code
        "scheduler_polling_interval_sec": 5.0,
    }
    DBOS(config=config)
    adopt_library_logger("dbos")
    logging.getLogger("dbos").addFilter(OfDbos())
    workflows.register_job_workflows(workspace, queue, kinds, children, budget, keeper.beat)
    DBOS.listen_queues([QUEUE])
    DBOS.launch()
    keeper.start()
    log.info("worker started", slot=slot, worker=keeper.worker)
    witness = None if settings.control_url is not None else Witness(workspace.layout.control_path)
    leftovers = workflows.Leftovers(workspace, queue)
    looked_at = -LEFTOVERS_S
    while not stop.wait(PARENT_CHECK_S):
        if witness is not None:
            _end_without(witness)
        if time.monotonic() - looked_at >= LEFTOVERS_S:
            _clear(leftovers)
            looked_at = time.monotonic()
        if parent is not None and os.getppid() != parent:
            log.warning("the server is gone, so its worker stops")
            break
    log.info("worker stopped", slot=slot)
    DBOS.destroy()
    keeper.end()
    lock.close()
    SocketFolder.end()
    # A thread that waits for its child would keep the process alive; its job stays "running" and is taken over.
    os._exit(0)


def _active_jobs() -> Sequence[str]:
    """Return the jobs that this process runs, according to DBOS."""
    jobs: Sequence[str] = dbos_of_process()._active_workflows_set.activeList()
    return jobs


def _queue_again(job_id: str) -> None:
    """Requeue a job assigned to this worker; unlike `resume` this keeps the number of attempts."""
    dbos_of_process()._sys_db.reenqueue_for_recovery(job_id, [GlobalParams.executor_id], INTERNAL_QUEUE_NAME)


def _start_over(error: LeaseLost) -> NoReturn:
    """Restart the process at once, since its jobs now belong to other workers."""
    structlog.get_logger("worker").warning("this worker was taken for dead and restarts", reason=str(error))
    restart_worker_process()


def _end_without(workspace: Witness) -> None:
    """End the process if its database was removed: jobs written there are lost."""
    try:
        workspace.check()
    except Unwritable as error:
        structlog.get_logger("worker").error("the workspace is gone, so its worker stops", reason=str(error))
        SocketFolder.end()
        os._exit(GONE)


def _clear(leftovers: workflows.Leftovers) -> None:
    try:
        leftovers.clear()
    except Exception as error:  # the control database is away, and jobs wait for it as well
        structlog.get_logger("worker").warning("leftovers of jobs are not removed yet", reason=str(error))
