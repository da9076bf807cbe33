"""A worker that lives as long as a test needs its jobs run."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.service.asking import PATIENCE_S
from tests.service.forks import started


@contextlib.contextmanager
def job_worker(workspace: Path) -> Iterator[None]:
    """While what is inside runs, `fewpass worker` takes the jobs of a workspace; at other times they wait."""
    command = [sys.executable, "-m", "service.cli", "worker", "--workspace", str(workspace)]
    with tempfile.NamedTemporaryFile() as log:
        process = started(command, stdout=log, stderr=log, env=dict(os.environ) | {"FEWPASS_JOB_POLL_S": "0.05"})
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
