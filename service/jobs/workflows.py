"""One durable workflow for every kind of job: its steps run in order, each at least once, each leaving a receipt."""

import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import structlog
from dbos import DBOS, PortableWorkflowError
from dbos import error as dbos_errors
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from learners.errors import Cancelled
from service.jobs.children import Child, Children, SocketFolder
from service.jobs.job_limits import LESS, format_byte_size, job_limits, job_timeout_error
from service.jobs.queue import PROGRESS, RECORDED_AT, WORKFLOW, JobQueue
from service.jobs.steps import Kinds, Run, Steps, owning_job, remove_job_scratch
from service.jobs.worker_slots import Budget
from service.requests.json_values import JSONObject
from service.requests.problems import OutOfMemory, is_disk_write_refused, is_expected_error, problem_from_error
from service.requests.recorded import current_request
from service.settings import Settings
from service.workspace import Workspace
from storage.control.audit import Actor, acting_as, record_act
from storage.control.control import translate_database_error
from storage.errors import ControlUnavailable, LeaseLost, NotFound, Unwritable

AWAY = (ControlUnavailable, OperationalError, InterfaceError)
AWAY_S = 1.0
Answer = TypeVar("Answer")


def register_job_workflows(
    workspace: Workspace,
    queue: JobQueue,
    kinds: Kinds,
    children: Children,
    budget: Budget,
    write: Callable[[], object] = lambda: None,
) -> None:
    """Register the job workflows with DBOS, before it is launched.

    Parameters
    ----------
    workspace : its settings say how many jobs at the same time, how often to try, how often to record progress, and what a
        job may take
    queue : asked whether a job that lost its worker was cancelled
    kinds : the steps of each kind of job; the last receipt is the job's result
    children : in which the steps run: each has opened the same kinds
    budget : of which a job gets its share of memory before it begins
    write : writes a little to the control database; a job whose end could not be recorded waits until that can be done
    """
    settings, layout = workspace.settings, workspace.layout
    # DBOS hands a recovered job to its internal queue, which knows no limit, so the limit is kept here once more.
    slots = threading.BoundedSemaphore(settings.job_concurrency)

    # DBOS counts recoveries, so one less than starts.
    @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=settings.job_attempts - 1)  # type: ignore[untyped-decorator]
    def run_job(document: JSONObject) -> JSONObject:
        with slots, children.one() as child:
            job_id = str(DBOS.workflow_id)
            attempt = Attempt(job_id, document, child, settings, budget)
            try:
                result = attempt.run(kinds[document["kind"]])
            except dbos_errors.DBOSBaseException:
                # Cancelled, or handed to another worker, which still needs what is there.
                if _patiently(lambda: queue.get(job_id), lambda: None).state == "cancelled":
                    remove_job_scratch(layout, job_id)
                    with structlog.contextvars.bound_contextvars(job=job_id):
                        structlog.get_logger("jobs").info("job cancelled")
                raise
            except PortableWorkflowError as error:  # its own failure, as recorded
                remove_job_scratch(layout, job_id)
                _record_failure(workspace, job_id, document, str(error.name))
                raise
            except Exception as error:
                # Nobody knows whether this is recorded: DBOS ends before the thread of a job does when a worker stops.
                # If the job is taken over, it needs its files; if it has failed, `Leftovers` removes them.
                ours = translate_database_error(error) if isinstance(error, DBAPIError) else error
                structlog.get_logger("jobs").warning(
                    "the job stops without a record of it", job=job_id, reason=str(ours), exc_info=ours is error
                )
                if ours is error and not is_disk_write_refused(error):
                    raise
                _wait_until_writable(write)
                raise _recorded(ours) from error
            finally:
                budget.give_back(job_id)
            remove_job_scratch(layout, job_id)
            return result


def _record_failure(workspace: Workspace, job_id: str, document: JSONObject, problem: str) -> None:
    """Write the failure of a job into the audit log, from which webhooks get it; the job fails whether that succeeds or not."""
    model = document["request"].get("model")
    try:
        with workspace.control.writing() as connection, acting_as(Actor(f"job {job_id}")):
            record_act(
                connection,
                "job failed",
                job_id,
                kind=document["kind"],
                problem=problem,
                models=[] if model is None else [str(model).partition("@")[0]],
            )
    except (*AWAY, Unwritable, LeaseLost, OSError) as error:
        structlog.get_logger("jobs").warning("the failure is not in the audit log", job=job_id, reason=str(error))


class Attempt:
    """One attempt at a job: its request, process, limits and start time."""

    def __init__(self, job_id: str, document: JSONObject, child: Child, settings: Settings, budget: Budget) -> None:
        self.job_id, self.kind, self.request = job_id, document["kind"], document["request"]
        self.child, self.budget, self.progress_s = child, budget, settings.progress_s
        self.limits = job_limits(settings, self.request)
        self.receipts: dict[str, JSONObject] = {}
        self.started: float | None = None

    def run(self, steps: Steps) -> JSONObject:
        """Run the steps one after another, each durably; the last receipt is the result."""
        for name in steps:
            self.receipts[name] = DBOS.run_step({"name": name}, self._run_step, name)
        return self.receipts[list(steps)[-1]]

    def _run_step(self, name: str) -> JSONObject:
        with structlog.contextvars.bound_contextvars(job=self.job_id, step=name):
            log = structlog.get_logger("jobs")
            log.info("step started")
            started = time.perf_counter()
            with _Reporter(name, self.progress_s, self._check) as reporter:
                try:
                    self._begin(lambda: reporter({"stage": "waiting for memory"}))
                    receipt = _patiently(
                        lambda: self._run_aside(name, reporter),
                        lambda: reporter({"stage": "waiting for the control database"}),
                    )
                except LeaseLost as error:  # the job is another's: not even its failure may be recorded here
                    log.warning("the job was taken over by another worker", reason=str(error))
                    restart_worker_process()
                except Exception as error:
                    if reporter.stopped is not None:
                        # DBOS parks the workflow on its own error, and the state stays what the canceller wrote.
                        log.info("step stopped", reason=str(reporter.stopped))
                        raise reporter.stopped from error
                    if is_expected_error(error):
                        log.warning("step failed", error=str(error))
                    else:
                        log.exception("step failed")
                    raise _recorded(error) from error
            seconds, peak = round(time.perf_counter() - started, 3), format_byte_size(self.child.peak)
            log.info("step finished", seconds=seconds, memory_peak=peak)
            return receipt

    def _begin(self, wait: Callable[[], None]) -> None:
        """Wait for a share of the memory budget; does nothing if the job has begun."""
        if self.started is None:
            self.budget.take(self.job_id, self.limits.memory, wait)
            self.started = time.monotonic()

    def _run_aside(self, name: str, reporter: "_Reporter") -> JSONObject:
        memory = self.limits.memory
        job = self.job_id, self.request, self.receipts, memory
        receipt: JSONObject = self.child.run(
            _in_child, self.kind, name, job, memory=memory, report=reporter, check=reporter.check
        )
        return receipt

    def _check(self) -> None:
        """Raise JobFailed if the job has exceeded its time limit."""
        limit_s = self.limits.time_s
        if limit_s is not None and self.started is not None and time.monotonic() - self.started > limit_s:
            raise job_timeout_error(limit_s)


def _in_child(
    kinds: Kinds, report: Callable[[JSONObject], None], kind: str, name: str, job: tuple[Any, ...]
) -> JSONObject:
    """Run a step in the child process of its job."""
    job_id, request, receipts, memory_limit = job
    with structlog.contextvars.bound_contextvars(job=job_id, step=name), acting_as(Actor(f"job {job_id}")):
        return kinds[kind][name](Run(job_id, current_request(request), receipts, report, memory_limit))


class Leftovers:
    """Removes scratch folders of jobs whose worker ended first: jobs cancelled with it, or given up."""

    def __init__(self, workspace: Workspace, queue: JobQueue) -> None:
        self.layout, self.queue = workspace.layout, queue
        self._ended: set[str] = set()

    def clear(self) -> None:
        """Clean up after jobs that had already ended at the last call; a job that has just ended cleans up itself."""
        scratch = self.layout.scratch.glob("job-*")
        ended = {path.name for path in scratch if self._has_ended(owning_job(path.name))}
        for job_id in ended & self._ended:
            remove_job_scratch(self.layout, job_id)
            with structlog.contextvars.bound_contextvars(job=job_id):
                structlog.get_logger("jobs").info("leftovers of the job are removed")
        self._ended = ended

    def _has_ended(self, job_id: str) -> bool:
        try:
            return self.queue.get(job_id).is_finished
        except NotFound:
            return True


def restart_worker_process() -> NoReturn:
    """Restart this process with the same command and process id; its children end."""
    SocketFolder.end()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _patiently(ask: Callable[[], Answer], wait: Callable[[], None]) -> Answer:
    """Repeat a call until the control database is reachable; `wait` may raise.

    A step runs at least once anyway, and what it has counted is stored: so it is only its last part that is made again.
    """
    is_known = False
    while True:
        try:
            return ask()
        except AWAY as error:
            if not is_known:
                structlog.get_logger("jobs").warning(
                    "the control database is away, so the job waits", reason=str(error)
                )
            is_known = True
            wait()
            time.sleep(AWAY_S)


def _wait_until_writable(write: Callable[[], object]) -> None:
    """Wait until the control database accepts writes; if the lease is lost meanwhile, restart the worker."""
    while True:
        try:
            write()
        except LeaseLost:
            restart_worker_process()
        except (*AWAY, Unwritable, DBAPIError, OSError):
            time.sleep(AWAY_S)
        else:
            return


def _recorded(error: Exception) -> PortableWorkflowError:
    """Convert an error to the problem document stored with the job; for an unexpected error, its type and text."""
    if isinstance(error, MemoryError):
        error = OutOfMemory(f"The system is out of memory: {error}. {LESS}")
    if isinstance(error, DBAPIError):
        error = translate_database_error(error)
    problem = problem_from_error(error)
    body = problem.body()
    if not is_expected_error(error):
        body["detail"] = f"{type(error).__name__}: {error}. The worker's log has the traceback."
    return PortableWorkflowError(body["detail"], problem.slug, problem.status, body)


class _Reporter:
    """Records the latest progress every `progress_s` on a separate thread; DBOS refuses the write of a cancelled job.

    So neither a slow database delays a pass, nor a slow chunk hides that the job was cancelled.
    """

    def __init__(self, step: str, progress_s: float, is_in_time: Callable[[], None]) -> None:
        self.step, self.progress_s, self.is_in_time = step, progress_s, is_in_time
        self.stopped: BaseException | None = None
        self._latest: JSONObject = {}
        self._done = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._record_often,), name="progress", daemon=True)

    def __enter__(self) -> "_Reporter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self.stopped is None:
            self._record()

    def __call__(self, progress: JSONObject) -> None:
        self.check()
        number = progress.get("pass_number")
        if number is not None and number != self._latest.get("pass_number"):
            structlog.get_logger("jobs").info(
                "pass started", number=number, of=progress.get("n_passes"), stage=progress.get("stage")
            )
        self._latest = progress

    def check(self) -> None:
        """Raise Cancelled or JobFailed if the job was cancelled or takes too long."""
        if self.stopped is not None:
            raise Cancelled("The job was cancelled.") from self.stopped
        self.is_in_time()

    def _record_often(self) -> None:
        while self.stopped is None:
            self._record()
            if self._done.wait(self.progress_s):
                return

    def _record(self) -> None:
        try:
            DBOS.set_event(PROGRESS, {"step": self.step, **self._latest, RECORDED_AT: time.time()})
        except dbos_errors.DBOSBaseException as error:  # cancelled, or handed to another worker
            self.stopped = error
        except Exception as error:
            is_expected = isinstance(error, DBAPIError)
            structlog.get_logger("jobs").warning(
                "progress was not recorded",
                reason=str(translate_database_error(error) if isinstance(error, DBAPIError) else error),
                exc_info=not is_expected,
            )
