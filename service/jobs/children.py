"""Work in a child process with a memory limit: a failure there ends only that work.

A child is kept for the next work while it is small, so that kernels are loaded once. It ends by itself when its parent does,
or has been silent for too long: then others may have taken over what it works for.
"""

import contextlib
import multiprocessing
import os
import pickle
import queue
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

from learners.errors import Cancelled, Surface, messages_for
from learners.passes.memory import machine_memory_bytes
from service.jobs.job_limits import (
    LESS,
    format_byte_size,
    job_memory_error,
    lower_process_priority,
    process_memory_bytes,
)
from service.jobs.packed_errors import pack_error, unpack_error
from service.jobs.steps import Report
from service.requests.json_values import JSONObject
from service.requests.problems import JobFailed, OutOfMemory, is_expected_error

LOOK_S = 0.02
BEAT_S = 0.2
GRACE_S = 0.5  # from asking a child to stop until it is ended
SILENCE_S = 15.0
KEPT_BYTES = 256 << 20  # a child that has grown by more is not used again
MACHINE_SHARE = 0.9  # what a child may take whose work has no limit
ORPHANED = 5  # the exit code of a child whose parent was silent
# A child that ends so was told to by the system, not by its work, which starts again; 255 is a lost fork server.
NOT_ITS_OWN = {ORPHANED, -signal.SIGTERM, -signal.SIGINT, 255}

is_child = False  # whether this process is one


class SocketFolder:
    """Temporary folder for the sockets of child processes, which end without finalizers; its name is short because
    socket paths must be.
    """

    _own: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def begin(cls) -> None:
        """Create the folder and make it the temporary folder of the process."""
        cls._own = tempfile.TemporaryDirectory(prefix="fp-", ignore_cleanup_errors=True)
        tempfile.tempdir = cls._own.name

    @classmethod
    def end(cls) -> None:
        """Remove the folder, if it exists, right before the process ends."""
        if cls._own is not None:
            cls._own.cleanup()


class ChildGone(Exception):
    """Raised if a child ended through no fault of its work."""


class Child:
    """A process that does tasks one after another.

    It calls `opener`, which is picklable, once; all work gets what that returns. It ends when it had nothing to do for
    `idle_s`, or works and has not heard of this process for `silence_s`.
    """

    def __init__(
        self,
        opener: Callable[[], object],
        context: ForkServerContext | SpawnContext,
        silence_s: float = SILENCE_S,
        idle_s: float | None = None,
    ) -> None:
        self.opener, self.context, self.silence_s, self.idle_s = opener, context, silence_s, idle_s
        self.peak = 0
        self._process: Any = None
        self._conn: Connection | None = None
        self._is_open = False
        self._first_rest = 0

    def start(self) -> None:
        """Start the process unless it runs; it opens its resources in the background."""
        if self._process is not None and self._process.is_alive():
            return
        self.end()
        self._conn, theirs = self.context.Pipe()
        arguments = (theirs, self.opener, self.silence_s, self.idle_s)
        self._process = self.context.Process(target=_live, args=arguments, name="child", daemon=True)
        self._process.start()
        lower_process_priority(self._process.pid)  # from here, so that it also holds while the child loads its modules
        theirs.close()
        self._is_open = False

    def end(self) -> None:
        """Kill the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def rest(self) -> bool:
        """Return whether the process may be used again; one that has grown too large is ended."""
        if self._process is not None and process_memory_bytes(self._process.pid) - self._first_rest > KEPT_BYTES:
            self.end()
        return self._process is not None

    def run(
        self,
        work: Callable[..., Any],
        *arguments: object,
        memory: int | None = None,
        report: Report = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run `work(opened, report, *arguments)` in the process and return its result; all values must be picklable.

        The work may take `memory` bytes beyond what the process held before. `report` is called with what it reports, and
        `check` several times a second; an exception of either stops the work. Raises OutOfMemory if it takes more memory, or
        the kernel ends the process for want of memory; JobFailed if the process ends in another way; else what the work,
        `report` or `check` raises.
        """
        self.peak = 0
        while True:
            with contextlib.suppress(ChildGone):
                return self._run(work, arguments, memory, report, check)
            check()

    def _run(
        self,
        work: Callable[..., Any],
        arguments: tuple[object, ...],
        memory: int | None,
        report: Report,
        check: Callable[[], None],
    ) -> Any:
        self.start()
        assert self._conn is not None
        if not self._is_open:
            self._receive(None, lambda _: None, check)
            self._is_open = True
            self._first_rest = process_memory_bytes(self._process.pid)
        try:
            self._conn.send((work, arguments))
        except OSError as error:  # it was idle for long, and has just ended
            self.end()
            raise ChildGone from error
        return self._receive(memory or int(MACHINE_SHARE * machine_memory_bytes()), report, check)

    def _receive(self, memory: int | None, report: Report, check: Callable[[], None]) -> Any:
        """Return the answer of the process, or raise its exception."""
        assert self._conn is not None
        pid, stopping = self._process.pid, _Stopping(self._conn)
        at_rest = process_memory_bytes(pid)
        while True:
            if self._conn.poll(LOOK_S):
                try:
                    kind, content = self._conn.recv()
                except (EOFError, OSError):
                    raise stopping.reason or self._ended(at_rest) from None
                if kind == "done":
                    return content
                if kind == "failed":
                    raise stopping.reason or unpack_error(content)
                stopping.tries(partial(report, content))
            used = process_memory_bytes(pid) - at_rest
            self.peak = max(self.peak, used)
            if memory is not None and used > memory:
                self.end()
                raise job_memory_error(memory, used)
            stopping.tries(check)
            if stopping.reason is not None and stopping.is_over():
                self.end()
                raise stopping.reason
            stopping.beat()

    def _ended(self, at_rest: int) -> Exception:
        """Return an exception for the reason why the process ended."""
        self._process.join(GRACE_S)
        code = self._process.exitcode
        self.end()
        if code in NOT_ITS_OWN or code is None:
            return ChildGone()
        if code == -signal.SIGKILL:
            return OutOfMemory(
                f"The kernel killed the process of this job, most likely because memory ran out; it held "
                f"{format_byte_size(self.peak + at_rest)} when last seen. {LESS}",
                memory_used=self.peak + at_rest,
            )
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return JobFailed(
            f"The process of this job ended with {how}: a library crashed on its input. Check the files and models that the job names.",
            exit_code=code,
        )


class _Stopping:
    """Asks a child to stop once something has raised, and sends it heartbeats from its parent."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.reason: Exception | None = None
        self._stop_at = self._beat_at = 0.0

    def tries(self, call: Callable[[], None]) -> None:
        """Call a function; an exception from it stops the child."""
        if self.reason is not None:
            return
        try:
            call()
        except Exception as error:
            self.reason, self._stop_at = error, time.monotonic()
            self._say("stop")

    def is_over(self) -> bool:
        """Return whether the child's time to stop has passed."""
        return time.monotonic() - self._stop_at > GRACE_S

    def beat(self) -> None:
        """Send the child a heartbeat."""
        if time.monotonic() - self._beat_at > BEAT_S:
            self._beat_at = time.monotonic()
            self._say("beat")

    def _say(self, word: str) -> None:
        with contextlib.suppress(OSError):  # it has ended, as reading will find
            self.conn.send(word)


class Children:
    """Pool of children for the same kinds of work; at most `n_kept` idle ones are kept.

    By "forkserver" they cost a process that has loaded everything and nearly no time for each child; by "spawn" no process,
    and a second or two for each child. The other parameters are those of `Child`.
    """

    def __init__(
        self,
        opener: Callable[[], object],
        *,
        n_kept: int = 1,
        method: str = "forkserver",
        silence_s: float = SILENCE_S,
        idle_s: float | None = None,
    ) -> None:
        self.opener, self.n_kept, self.silence_s, self.idle_s = opener, n_kept, silence_s, idle_s
        self.context: Any = multiprocessing.get_context(method)
        self.is_cheap = method == "forkserver"
        self._kept: list[Child] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one(self) -> Iterator[Child]:
        """Provide a child for exclusive use."""
        with self._lock:
            child = self._kept.pop() if self._kept else Child(self.opener, self.context, self.silence_s, self.idle_s)
        try:
            yield child
        finally:
            is_warm = child.rest()
            with self._lock:
                is_kept = (is_warm or self.is_cheap) and len(self._kept) < self.n_kept
                if is_kept:
                    if self.is_cheap:
                        child.start()  # before another thread can take it and start it, too
                    self._kept.append(child)
            if not is_kept:
                child.end()

    def warm(self) -> None:
        """Start a child before there is work."""
        with self.one() as child:
            child.start()

    def close(self) -> None:
        """End the idle children."""
        with self._lock:
            while self._kept:
                self._kept.pop().end()


@messages_for(Surface.JSON)
def _live(conn: Connection, opener: Callable[[], object], silence_s: float, idle_s: float | None) -> None:
    global is_child  # noqa: PLW0603 — of the process
    is_child = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, whose parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A daemon, so that whoever ends does not wait for it; yet a Dask cluster of its work needs processes of its own.
    vars(multiprocessing.current_process())["_config"]["daemon"] = False
    with contextlib.suppress(OSError):  # where memory runs out, it is the job that ends and not the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    inbox = _Inbox(conn, silence_s, idle_s)
    threading.Thread(target=inbox.listen, name="parent", daemon=True).start()
    opened = inbox.open(opener)
    while True:
        work, arguments = inbox.tasks.get()
        inbox.answer(work, opened, arguments)
        del work, arguments


class _Inbox:
    """The child's end of the pipe to its parent."""

    def __init__(self, conn: Connection, silence_s: float, idle_s: float | None) -> None:
        self.conn, self.silence_s, self.idle_s = conn, silence_s, idle_s
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stop, self._saying = threading.Event(), threading.Lock()
        self._is_busy = True

    def listen(self) -> None:
        """Receive messages until the parent is gone or silent, then end this process."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                was_busy = self._is_busy
                if not self.conn.poll(self.silence_s if was_busy else self.idle_s):
                    if was_busy and not self._is_busy:
                        continue
                    break
                heard = self.conn.recv()
                if heard == "stop":
                    self._stop.set()
                elif heard != "beat":
                    self._is_busy = True
                    self._stop.clear()
                    self.tasks.put(heard)
        os._exit(ORPHANED)

    def open(self, opener: Callable[[], object]) -> object:
        """Open the resources that all work needs, and report the result."""
        try:
            opened = opener()
        except Exception as error:
            self.say("failed", pack_error(error))
            os._exit(ORPHANED)
        self._is_busy = False
        self.say("done", None)
        return opened

    def answer(self, work: Callable[..., Any], opened: object, arguments: tuple[object, ...]) -> None:
        """Do the work and send its result or error."""
        try:
            kind, content = "done", work(opened, self.report, *arguments)
            pickle.dumps(content)
        except Exception as error:
            if not is_expected_error(error):
                import structlog  # 40 ms, which a command that starts no child need not spend

                structlog.get_logger("jobs").exception("work failed")
            kind, content = "failed", pack_error(error)
        self._is_busy = False
        self.say(kind, content)

    def report(self, progress: JSONObject) -> None:
        """Send progress; raises Cancelled if the parent has asked to stop."""
        if self._stop.is_set():
            raise Cancelled("The job was cancelled.")
        self.say("progress", progress)

    def say(self, kind: str, content: object) -> None:
        """Send a message to the parent; ignored if the parent is gone."""
        try:
            with self._saying:
                self.conn.send((kind, content))
        except OSError:
            os._exit(ORPHANED)
