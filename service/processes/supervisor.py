"""The processes of `fewpass serve`: serving processes on one socket, and job workers that end with them."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from learners.errors import Surface, messages_for
from service import product
from service.settings import Settings, unknown_setting_warnings
from service.startup import (
    end_with_parent,
    relax_gc_for_startup,
    restore_gc_after_startup,
    skip_pandas_import,
    start_no_blas_threads,
)
from service.telemetry import configure_logs
from storage.errors import is_disk_write_refusal
from storage.files.workspace_layout import Layout

if TYPE_CHECKING:
    from service.jobs.steps import Kinds

GONE = 4  # as in service.jobs.worker, which takes DBOS along
RESTART_S = 1.0  # grows while a worker keeps dying, so that a broken workspace does not fill the log
MAX_RESTART_S = 30.0
START_BYTES = 1 << 20  # a worker that starts writes fewer
MOMENT_S = 1.0
STARTUP_FAILURE = 3  # uvicorn's exit code where starting again would fail the same way
# New serving processes one by one; one more; one less: uvicorn's supervisor takes these from whoever runs it.
FORWARDED = (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU)


@messages_for(Surface.JSON)
def run_server(settings: Settings) -> None:
    """Serve on one socket with the configured number of workers until SIGTERM or SIGINT; no child process outlives it."""
    relax_gc_for_startup()
    with _metrics_directory(settings):
        configure_logs(settings, "serve")
        _warn_of_variables()
        # uvicorn raises the signal again when it has shut down; the default action would skip our own endings.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        _prepare(settings)
        with supervised_job_workers(settings), contextlib.suppress(KeyboardInterrupt):
            _serve(settings)


@messages_for(Surface.JSON)
def run_worker(settings: Settings, parent: int | None = None) -> None:
    """Run jobs until SIGTERM or SIGINT, or until the parent process ends, even during startup."""
    if parent is not None and sys.platform == "linux":
        end_with_parent(parent)
    relax_gc_for_startup()
    skip_pandas_import()
    from service.jobs.logs import enable_job_logs
    from service.jobs.worker import run_worker_loop
    from service.product.submission.scheduler import Scheduler
    from service.workspace import Workspace

    configure_logs(settings, "worker")
    if parent is None:
        _warn_of_variables()
    multiprocessing.set_forkserver_preload(["service.processes.preloaded_jobs"])
    workspace = Workspace(settings)
    assert workspace.control is not None  # its WAL mode holds for the job tables in the same file
    enable_job_logs(workspace.layout.root / "logs")
    Scheduler(workspace).start()
    kinds = product.job_steps_by_kind(workspace)
    restore_gc_after_startup()
    run_worker_loop(workspace, kinds, partial(open_leased_job_steps, settings), parent)


def open_leased_job_steps(settings: Settings, worker: str) -> "Kinds":
    """Return the steps of every kind of job, for a job's process; the lease of its worker fences what it writes."""
    from service.jobs.logs import enable_job_logs
    from service.workspace import Workspace

    configure_logs(settings, "worker")
    workspace = Workspace(settings)
    workspace.control.lease = worker
    enable_job_logs(workspace.layout.root / "logs")
    tempfile.tempdir = str(workspace.temporary)  # also what libraries write aside is swept away after a kill
    return product.job_steps_by_kind(workspace)


def _warn_of_variables() -> None:
    for warning in unknown_setting_warnings(os.environ):
        structlog.get_logger("settings").warning(warning)


def _prepare(settings: Settings) -> None:
    """Create and migrate the workspace once, before several processes open it; refuse to listen openly without a key."""
    from service.http.security import check_api_keys_exist
    from service.workspace import Workspace

    with Workspace(settings) as workspace:
        check_api_keys_exist(settings, workspace.control)
        if not settings.predict_only:
            product.job_queue(workspace)


def _serve(settings: Settings) -> None:
    from uvicorn.supervisors import Multiprocess

    from service.http.connections import Server
    from service.processes.forking import uvicorn_config

    environment = settings.within(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    config = uvicorn_config(settings)
    server = Server(config)
    listening = config.bind_socket()
    host, port = listening.getsockname()[:2]
    structlog.get_logger("serve").info("serving", url=f"http://{host}:{port}", port=port, workers=settings.workers)
    if settings.log_format == "console" and sys.stderr.isatty():
        reachable = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        print(f"Open http://{reachable}:{port} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    if settings.workers == 1:
        skip_pandas_import()
        server.run(sockets=[listening])
        if not server.started:
            sys.exit(STARTUP_FAILURE)
        return
    restore_gc_after_startup()
    if sys.platform == "linux":
        _serve_forked(settings, listening)
    else:
        Multiprocess(config, sockets=[listening]).run()


def _serve_forked(settings: Settings, listening: socket.socket) -> None:
    """Keep alive the process from which serving processes are forked; see `service.processes.forking`."""
    descriptor = listening.fileno()
    command = [sys.executable, "-m", "service.processes.forking", str(descriptor), str(os.getpid())]
    start_no_blas_threads()  # which would run beside the fork
    pause, has_served = RESTART_S, False
    while True:
        started = time.monotonic()
        process = subprocess.Popen(command, pass_fds=[descriptor], start_new_session=True)
        _forward_to(process)
        try:
            code = process.wait()
        except BaseException:  # it is to stop: who came now would wait at a door that nobody opens
            listening.close()
            raise
        finally:
            # Longer than the serving processes are given, as it waits for them.
            end_process(process, settings.shutdown_s + MAX_RESTART_S)
        has_lasted = time.monotonic() - started > MAX_RESTART_S
        has_served = has_served or has_lasted
        if code == STARTUP_FAILURE and not has_served:
            sys.exit(code)
        pause = RESTART_S if has_lasted else pause
        structlog.get_logger("serve").error("serving died, another takes its place", code=code, pause_s=pause)
        time.sleep(pause)
        pause = min(pause * 2, MAX_RESTART_S)


def _forward_to(process: subprocess.Popen[bytes]) -> None:
    def forward(number: int, _frame: object) -> None:
        process.send_signal(number)

    for number in FORWARDED:
        signal.signal(number, forward)


@contextlib.contextmanager
def _metrics_directory(settings: Settings) -> Iterator[None]:
    """Provide a directory in which several serving processes add up their metrics; must be set before prometheus-client
    is imported.
    """
    if settings.workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="fewpass-metrics-") as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        yield


@contextlib.contextmanager
def supervised_job_workers(settings: Settings) -> Iterator[None]:
    """Run job worker processes, restart them when they die, and end them on exit."""
    stop = threading.Event()
    keepers = [
        threading.Thread(target=_keep_worker, args=(settings, stop), name=f"keep-worker-{number}")
        for number in range(0 if settings.predict_only else settings.job_workers)
    ]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        stop.set()
        for keeper in keepers:
            keeper.join()


def _keep_worker(settings: Settings, stop: threading.Event) -> None:
    log = structlog.get_logger("serve")
    command = [sys.executable, "-m", "service.cli", "worker", "--parent", str(os.getpid())]
    environment = settings.within(os.environ)
    environment.pop("PROMETHEUS_MULTIPROC_DIR", None)  # which is of serving processes
    there = Layout(settings.workspace).control_path
    pause = RESTART_S
    while not stop.is_set():
        started = time.monotonic()
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        while process.poll() is None and not stop.wait(0.1):
            pass
        if process.poll() is None:
            end_process(process, _seconds_to_stop(settings))
            return
        pause = RESTART_S if time.monotonic() - started > MAX_RESTART_S else pause
        log.error("job worker died, another takes its place", code=process.returncode, pause_s=pause)
        if takes_no_bytes(settings.workspace):
            pause = RESTART_S
            while takes_no_bytes(settings.workspace) and not stop.wait(pause):
                pass
            log.warning("the workspace can be written again, so a job worker starts")
        else:
            stop.wait(pause)
        # Where the workspace was removed, a new worker would make an empty one, and nobody could put it back.
        while process.returncode == GONE and not there.exists() and not stop.wait(RESTART_S):
            pass
        pause = min(pause * 2, MAX_RESTART_S)


def takes_no_bytes(folder: Path) -> bool:
    """Return whether the disk of a workspace is full or read-only; a worker that starts there ends at once."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(START_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return is_disk_write_refusal(error)
    return False


def _seconds_to_stop(settings: Settings) -> float:
    """Seconds that a worker gets to stop: what is left of the time for open requests, which end meanwhile, plus a
    moment.
    """
    from service.http.connections import Server

    since = time.monotonic() if Server.stopping_since is None else Server.stopping_since
    return max(MOMENT_S, settings.shutdown_s + MOMENT_S - (time.monotonic() - since))


def end_process(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Terminate a process, and kill it after `timeout_s` seconds."""
    process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
