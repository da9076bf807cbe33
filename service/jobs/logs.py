"""Logs of jobs: one file per job, besides the worker's standard error."""

import logging
import re
import threading
from pathlib import Path
from typing import Any

import structlog

from service.telemetry import tracebacks_without_values

ID = re.compile(r"[a-z0-9-]{1,64}")


class JobLogs(logging.Handler):
    """Log handler that appends each line with a bound `job`, in it or in its context, to `<directory>/<job>.jsonl`."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[
                    structlog.contextvars.merge_contextvars,
                    structlog.processors.add_log_level,
                    structlog.processors.TimeStamper(fmt="iso", utc=True),
                ],
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.ExceptionRenderer(tracebacks_without_values()),
                    structlog.processors.JSONRenderer(),
                ],
            )
        )
        self._writing = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line if it belongs to a job; a full disk loses the line, not the job."""
        fields: Any = record.msg if isinstance(record.msg, dict) else structlog.contextvars.get_contextvars()
        job_id = fields.get("job")
        if not isinstance(job_id, str) or not ID.fullmatch(job_id):
            return
        try:
            line = self.format(record)
            with self._writing, job_log_path(self.directory, job_id).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            pass  # the process' own log has the line
        except Exception:
            self.handleError(record)


def enable_job_logs(directory: Path) -> None:
    """Make this process write a log per job, in addition to its own log."""
    directory.mkdir(exist_ok=True)
    logging.getLogger().addHandler(JobLogs(directory))


def job_log_path(directory: Path, job_id: str) -> Path:
    """Return the path of a job's log, which may not exist."""
    return directory / f"{job_id}.jsonl"
