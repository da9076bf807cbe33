"""Untrusted files are read in a child process, so that one that unpacks to gigabytes or crashes its reader ends nothing
else.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from learners.passes.memory import machine_memory_bytes
from service.jobs import children
from service.jobs.children import Children
from service.jobs.job_limits import format_byte_size, job_limits
from service.jobs.steps import Report
from service.requests.abandonment import check_still_asked
from service.requests.problems import InvalidRequest, JobFailed, OutOfMemory, TooSlow
from service.settings import Settings
from service.workspace import Workspace
from storage.control.audit import Actor, acting_as, current_actor

IDLE_S = 60.0
Answer = TypeVar("Answer")


def run_in_child_process(
    workspace: Workspace,
    call: Callable[..., Answer],
    *arguments: object,
    is_trusted: bool = True,
    time_limit_s: float | None = None,
) -> Answer:
    """Run `call(workspace, *arguments)` in a child process that has opened the same workspace, and return its result.

    All of it is picklable. A process that `is_trusted` may be used again; one that takes longer than `time_limit_s` is
    ended: the client no longer waits for the answer. Raises InvalidRequest if it takes more memory than a job may
    that does not say, or ends the process; TooSlow if it takes longer; else what the call raises.
    """
    if children.is_child:
        return call(workspace, *arguments)
    memory = job_limits(workspace.settings, {}).memory or machine_memory_bytes() // 2
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s

    def check() -> None:
        check_still_asked()
        if deadline is not None and time.monotonic() > deadline:
            raise TooSlow(
                f"Reading the inputs of the request takes longer than {time_limit_s:g} s.", timeout_s=time_limit_s
            )

    start = partial(_open, workspace.settings)
    pool = workspace.opened("aside", lambda: Children(start, method="spawn", idle_s=IDLE_S))
    with pool.one() as child:
        try:
            answer: Answer = child.run(_called, current_actor(), call, arguments, memory=memory, check=check)
        except OutOfMemory as error:
            raise InvalidRequest(
                f"Reading the inputs of the request takes more than {format_byte_size(memory)} of memory. Split them, or raise FEWPASS_JOB_MEMORY.",
                memory_limit=memory,
            ) from error
        except JobFailed as error:
            raise InvalidRequest(
                "An input of the request is damaged: the process that reads it crashes.", **error.fields
            ) from error
        finally:
            if not is_trusted:
                child.end()
    return answer


def _open(settings: Settings) -> Workspace:
    from service.telemetry import configure_logs  # in the child only

    configure_logs(settings, "read")
    return Workspace(settings)


def _called(
    workspace: Workspace, _report: Report, actor: Actor, call: Callable[..., Answer], arguments: tuple[object, ...]
) -> Answer:
    with acting_as(actor):
        return call(workspace, *arguments)
