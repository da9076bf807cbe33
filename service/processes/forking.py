"""Serving processes forked from one process that has loaded everything, so that they share its memory.

`python -m service.processes.forking FD PID` loads the application, compiles or loads the kernels of predictions, and forks the serving
processes onto the socket FD; it ends with its parent PID. It has no threads of its own (see docs/decisions/service-forking.md).
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

import structlog
from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess

from service.http.connections import Connection, Server, ServerConfig
from service.settings import Settings
from service.startup import end_with_parent, relax_gc_for_startup, restore_gc_after_startup, skip_pandas_import
from service.telemetry import configure_logs

if TYPE_CHECKING:
    from fastapi import FastAPI

# A process answers from a thread, which waits for others: on a machine that does much else, for several seconds.
HANG_S = 20
AGAIN_S = 1.0
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT_BYTES, MAPPED_BYTES = 8 * 2**20, 4 * 2**20
# pyarrow's allocator starts it when it is loaded, stops it before a fork and starts it anew behind it.
HARMLESS_THREADS = {"jemalloc_bg_thd"}


def raise_malloc_thresholds() -> None:
    """Make glibc keep a few megabytes freed by requests instead of returning them after each; no effect with other C
    libraries.

    A body of some hundred kilobytes would otherwise grow and trim the heap several times, and touch every page again:
    four fifths of the CPU time of receiving it.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


class Forked(ForkProcess):
    """A forked process that starts with the signal handlers of a fresh one."""

    def start(self) -> None:
        """Fork with signals blocked; the child unblocks them once its parent's handlers are removed."""
        held = signal.pthread_sigmask(signal.SIG_BLOCK, multiprocess.SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


class Servers(multiprocess.Multiprocess):
    """Uvicorn's supervisor, which keeps the socket open longer than its serving processes.

    It replaces a process whatever ended it. A start that fails ends all only before one has ever succeeded: after that
    its cause, such as a database that is away, passes.
    """

    has_served = False

    def keep_subprocess_alive(self) -> None:
        """Replace serving processes that have ended."""
        self.has_served = self.has_served or any(
            process.exitcode is None and process.is_ready(HANG_S) for process in self.processes
        )
        for index, process in enumerate(self.processes):
            if self.has_served and process.exitcode == STARTUP_FAILURE:
                structlog.get_logger("serve").error("a serving process could not start and is tried again")
                self.should_exit.wait(AGAIN_S)
                self.processes[index] = multiprocess.Process(self.config, self.sockets)
                self.processes[index].start()
        super().keep_subprocess_alive()

    def terminate_all(self) -> None:
        """End all serving processes, closing the sockets first so that no client waits on them."""
        for listening in self.sockets:
            listening.close()
        super().terminate_all()


def app_from_environment() -> "FastAPI":
    """Create the application in a serving process spawned by uvicorn."""
    from service.http.app import create_app

    settings = Settings()
    raise_malloc_thresholds()
    configure_logs(settings, "serve")
    return create_app(settings)


def run_forked_servers() -> None:
    """Load the modules, fork the serving processes, supervise them, and end with all of them."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    settings = Settings()
    raise_malloc_thresholds()
    configure_logs(settings, "serve")
    preload_serving_modules(settings)
    if threads := threads_lost_by_fork():
        structlog.get_logger("serve").warning("threads run beside the fork", threads=threads)
    vars(multiprocess).update(get_subprocess=fork_serving_process, Server=Server)
    servers = Servers(uvicorn_config(settings), [socket(fileno=descriptor)])
    servers.run()
    gc.unfreeze()  # or else what is frozen outlives the interpreter, and libraries complain
    if any(process.exitcode == STARTUP_FAILURE for process in servers.processes):
        sys.exit(STARTUP_FAILURE)


def preload_serving_modules(settings: Settings) -> None:
    """Import the modules of serving processes, and freeze them so that the garbage collector does not write to their
    pages.
    """
    relax_gc_for_startup()
    skip_pandas_import()
    import service.processes.preloaded  # noqa: F401
    from service.http.warm_up import warm_up_kernels

    gc.freeze()  # else the collection below looks at all modules: .2 s
    if settings.warm_up:
        warm_up_kernels()
    gc.collect()
    gc.freeze()
    restore_gc_after_startup()


def uvicorn_config(settings: Settings) -> Config:
    """Return the uvicorn configuration, for one serving process or many."""
    config = ServerConfig(
        "service.processes.forking:app_from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        loop="uvloop",
        http=Connection,
        ws="none",  # there are none, and what is no request would pass by the guard and the clocks
        log_config=None,
        access_log=False,
        server_header=False,
        # Longer than clients keep idle connections, so that it is never us who close one that is about to be used.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.shutdown_s),
        timeout_worker_healthcheck=HANG_S,
    )
    config.patience_s = settings.request_timeout_s
    return config


def fork_serving_process(config: Config, target: Callable[..., None], sockets: list[socket]) -> Any:
    """Fork a serving process, in place of uvicorn's function that starts an interpreter for each."""
    del config
    return Forked(target=_serve, args=(target, sockets, os.getpid()))


def _serve(target: Callable[..., None], sockets: list[socket], parent: int) -> None:
    for number in multiprocess.SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, multiprocess.SIGNALS)
    end_with_parent(parent)
    configure_logs(Settings(), "serve")  # anew, for the process id in each line
    with contextlib.suppress(KeyboardInterrupt):
        target(sockets=sockets)


def threads_lost_by_fork() -> list[str]:
    """Return the names of threads of this process, besides the main one, that a fork would lose."""
    tasks = Path("/proc/self/task").iterdir()
    names = [(task / "comm").read_text().strip() for task in tasks if task.name != str(os.getpid())]
    return sorted(set(names) - HARMLESS_THREADS)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    run_forked_servers()
